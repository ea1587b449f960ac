"""Paged attention on TPUs: JAX's kernels, where the tables below say that they fit.

They read the pages that a sequence has, and none else: nothing is gathered. What they need comes
from the TPU's tiles (8 rows of 128 numbers of 32 bits) and their own code, and was tried with
libtpu. Indices of pages are brought into range, as XLA's gathers do: a kernel would read whatever
is at such an address.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.lowering import registry
from xla_dynamo.lazily import lazily

from .. import paged_attention as plain

if TYPE_CHECKING:
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel
else:  # half a second, which programs without them need not take
    _PLACE = "jax.experimental.pallas.ops.tpu"
    paged_attention_kernel = lazily(f"{_PLACE}.paged_attention.paged_attention_kernel", globals())
    kernel = lazily(f"{_PLACE}.ragged_paged_attention.kernel", globals())

_LANES, _SUBLANES = 128, 8
_TABLE_BYTES = 512 * 1024  # indices of pages are in scalar memory, of which a core has 1 MB
# Of the 16 MB that a kernel has by default: two buffers of pages; and what goes with queries.
_BUFFER_BYTES, _QUERY_BYTES = 4 * 1024 * 1024, 6 * 1024 * 1024
_KEYS, _QUERIES = 512, 32  # in a block: what JAX found best for most shapes


@plain.paged_attention.on("tpu")
def paged_attention(
    q: Array,
    k_pages: Array,
    v_pages: Array,
    lengths: Array,
    page_indices: Array,
    pages_per_block: int,
    megacore: str | None,
    cap: float | None,
) -> Array:
    _require(_decoding_needs(q, k_pages, v_pages, lengths, page_indices, megacore))
    count, page_size = k_pages.shape[1:3]
    pages = page_indices.shape[1]
    buffers = 4 * page_size * q.shape[2] * k_pages.dtype.itemsize
    most = max(1, min(pages_per_block, _BUFFER_BYTES // buffers))
    # It divides the pages of a sequence by blocks, and knows no rest.
    block = next(size for size in range(min(most, pages), 0, -1) if pages % size == 0)
    with jax_adapter.narrow(), jax.default_matmul_precision("default"):
        return paged_attention_kernel.paged_attention(
            q,
            k_pages,
            v_pages,
            jnp.clip(lengths.astype(np.int32), 0, pages * page_size),
            jnp.clip(page_indices.astype(np.int32), 0, count - 1),
            pages_per_compute_block=block,
            megacore_mode=megacore,
            attn_logits_soft_cap=cap,
        )


@plain.ragged_paged_attention.on("tpu")
def ragged_paged_attention(
    q: Array,
    kv_pages: Array,
    kv_lens: Array,
    page_indices: Array,
    cu_q_lens: Array,
    num_seqs: Array,
    scale: float,
    window: int | None,
    cap: float | None,
    least: float,
    k_scale: float | None,
    v_scale: float | None,
    pages_per_block: int | None,
    queries_per_block: int | None,
    vmem_limit: int | None,
) -> Array:
    scales = k_scale, v_scale
    _require(_ragged_needs(q, kv_pages, kv_lens, page_indices, cu_q_lens, scales, window, cap))
    tokens, pages = q.shape[0], page_indices.shape[1]
    count, page_size, heads, width = kv_pages.shape
    buffers = 2 * page_size * heads * width * kv_pages.dtype.itemsize
    fitting = max(1, min(_KEYS // page_size, _BUFFER_BYTES // buffers))
    with jax_adapter.narrow(), jax.default_matmul_precision(_precision(q)):
        # A sequence without keys, or none at all, would leave copies under way that nobody waits
        # for; what such a sequence computes is stored nowhere.
        out = kernel.ragged_paged_attention(
            q,
            kv_pages,
            jnp.clip(kv_lens.astype(np.int32), 1, pages * page_size),
            jnp.clip(page_indices.astype(np.int32), 0, count - 1),
            cu_q_lens.astype(np.int32),
            jnp.clip(num_seqs.astype(np.int32), 1, kv_lens.shape[0]).reshape(1),
            sm_scale=scale,
            sliding_window=window,
            soft_cap=cap,
            mask_value=least,
            k_scale=k_scale,
            v_scale=v_scale,
            num_kv_pages_per_block=min(pages_per_block or fitting, pages),
            num_queries_per_block=min(queries_per_block or _queries(q, heads // 2), tokens),
            vmem_limit_bytes=vmem_limit,
        )
        # Rows after the last sequence are whatever was in the core's memory.
        token = jnp.arange(tokens, dtype=np.int32)
        own = token < cu_q_lens[num_seqs.reshape(())]
        return jnp.where(own[:, None, None], out, 0)


def _queries(q: Array, key_heads: int) -> int:
    """How many are computed at a time: two buffers of them and of results, sums, and scores."""
    _, heads, width = q.shape
    each = heads * width * (4 * q.dtype.itemsize + 12) + heads // key_heads * _KEYS * 16
    return next(n for n in (_QUERIES, 16, 8) if n * each <= _QUERY_BYTES or n == 8)


def _require(needs: Mapping[str, bool]) -> None:
    """Decline for the first need that is not met.

    Raises:
        Unsupported.
    """
    for need, is_met in needs.items():
        if not is_met:
            raise plain.products(f"The kernel needs {need}.")


def _decoding_needs(
    q: Array,
    k_pages: Array,
    v_pages: Array,
    lengths: Array,
    page_indices: Array,
    megacore: str | None,
) -> dict[str, bool]:
    batch, heads, width = q.shape
    key_heads, _, page_size, _ = k_pages.shape
    halves = {"kv_head": key_heads, "batch": batch}.get(megacore or "", 0)
    # It rounds keys and values to bfloat16, as a product of the TPU's own precision does.
    is_exact = q.dtype == jnp.bfloat16 or (q.dtype == np.float32 and _precision(q) == "default")
    return {
        **_common_needs(page_indices, page_size),
        "bfloat16, or float32 and the TPU's own precision of products": is_exact,
        "queries, keys and values of one dtype": q.dtype == k_pages.dtype == v_pages.dtype,
        "a multiple of 128 features": width % _LANES == 0 < width,
        "keys and values of one shape": k_pages.shape == v_pages.shape and k_pages.size > 0,
        "as many features in keys as in queries": k_pages.shape[3] == width,
        "key heads that divide the query heads": heads % max(key_heads, 1) == 0 < heads,
        "a length and a row of pages for each query": lengths.shape == page_indices.shape[:1]
        and lengths.shape == (batch,)
        and batch > 0,
        "an even number of what a megacore divides": halves % 2 == 0,
    }


def _ragged_needs(
    q: Array,
    kv_pages: Array,
    kv_lens: Array,
    page_indices: Array,
    cu_q_lens: Array,
    scales: tuple[float | None, float | None],
    window: int | None,
    cap: float | None,
) -> dict[str, bool]:
    tokens, heads, width = q.shape
    _, page_size, both, _ = kv_pages.shape
    key_heads, sequences = both // 2, page_indices.shape[0]
    of_8_bits = kv_pages.dtype in (jnp.float8_e5m2, jnp.float8_e4m3fn) and None not in scales
    return {
        **_common_needs(page_indices, page_size),
        "bfloat16 or float32": q.dtype in (jnp.bfloat16, np.float32),
        "pages of the queries' dtype, or of 8-bit floats with scales": q.dtype == kv_pages.dtype
        or of_8_bits,
        "128 features": width == kv_pages.shape[3] == _LANES,
        "queries and pages": min(tokens, kv_pages.size, sequences) > 0,
        "key heads that divide the query heads": both == 2 * key_heads > 0 == heads % key_heads,
        "1, 2, 4, 8 or a multiple of 8 words for the heads of a position": key_heads > 0
        and _is_tiled(both, kv_pages.dtype),
        "a multiple of 8 query heads for the key heads that it takes at a time": key_heads > 0
        and _are_blocks(heads, both, q.dtype, kv_pages.dtype),
        "a length for each row of pages": kv_lens.shape == (sequences,)
        and cu_q_lens.shape == (sequences + 1,),
        "a window of at least 1, and a cap other than 0": window != 0 and cap != 0,
    }


def _common_needs(page_indices: Array, page_size: int) -> dict[str, bool]:
    size = math.prod(page_indices.shape)
    return {
        'attention other than "xla"': registry.attention() != "xla",
        "at most 131072 indices of pages": 0 < size * 4 <= _TABLE_BYTES,
        "pages of a multiple of 8 positions": page_size % _SUBLANES == 0 < page_size,
    }


def _is_tiled(heads: int, dtype: Any) -> bool:
    """Whether the heads of a position are whole words of 32 bits, in whole tiles."""
    words, rest = divmod(heads * np.dtype(dtype).itemsize, 4)
    return rest == 0 and (words in (1, 2, 4) or words % _SUBLANES == 0)


def _are_blocks(heads: int, both: int, dtype: Any, of_pages: Any) -> bool:
    if not _is_tiled(both, of_pages):
        return False
    block, _ = kernel.get_min_heads_per_blk(heads, both, dtype, of_pages)
    return block % _SUBLANES == 0 or block == heads


def _precision(x: Array) -> str:
    """Of products within kernels, which know the TPU's own, of bfloat16, and "highest"."""
    is_default = jax.config.jax_default_matmul_precision == "default"  # pyright: ignore
    return "default" if is_default or x.dtype != np.float32 else "highest"
