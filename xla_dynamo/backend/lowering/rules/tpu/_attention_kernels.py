"""What attention's kernels for a TPU compute for one block of queries and one of keys.

Each adds to totals in the memory of the core while the last dimension of the grid runs, in float32,
and gives its results at the end. `_flash_attention` launches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from xla_dynamo.lazily import lazily

from .. import _attention_dropout as dropout

if TYPE_CHECKING:
    from jax.experimental import pallas
else:  # a third of a second, which programs without it need not take
    pallas = lazily("jax.experimental.pallas", globals())

LANES = 128
_BLOCKS = (512, 384, 256, 128)
_LOWEST = float(np.finfo(np.float32).min)  # of a row: less it -inf, a masked score, is -inf
_ROWS, _COLUMNS = (((1,), (1,)), ((), ())), (((1,), (0,)), ((), ()))  # x @ y.T, x @ y


@dataclass(frozen=True)
class Call:
    """What all kernels of an attention know: sizes, and how they compute.

    mask: the shape of the mask, [1 or batch, 1 or heads, 1 or queries, keys], or None.
    precision: of products of float32.
    cap: scores are bent into (-cap, cap), by a tanh.
    dropout: the probability with which a weight is dropped.
    """

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    features: int
    mask: tuple[int, ...] | None
    is_causal: bool
    scale: float
    precision: Any
    interpret: Any
    cap: float | None = None
    dropout: float = 0.0

    @property
    def block(self) -> tuple[int, int]:
        """Rows of queries and of keys that are computed at a time."""
        return _block(self.queries), _block(self.keys)

    @property
    def blocks(self) -> tuple[int, int]:
        return padded(self.queries) // self.block[0], padded(self.keys) // self.block[1]

    @property
    def group(self) -> int:
        return self.heads // self.key_heads

    def optional(self, refs: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """The mask and the seed, which kernels get in this order, or None; and the rest."""
        rest = [*refs]
        mask = None if self.mask is None else rest.pop(0)
        return mask, rest.pop(0) if self.dropout else None, rest


def padded(length: int) -> int:
    return -(-length // LANES) * LANES


def _block(length: int) -> int:
    return next(size for size in _BLOCKS if padded(length) % size == 0)


def seen(call: Call, i: Any, j: Any) -> Any:
    """Block j of keys; of those that no query of block i may see, the last that one may."""
    if not call.is_causal:
        return j
    return jnp.minimum(j, quotient((i + 1) * call.block[0] - 1, call.block[1]))


def is_seen(call: Call, i: Any, j: Any) -> Any:
    return (i + 1) * call.block[0] > j * call.block[1] if call.is_causal else True


def quotient(x: Any, by: int) -> Any:
    """Of what is not negative: `//` would ask JAX for the TPU that is here."""
    return lax.div(x, np.int32(by)) if by > 1 else x


def rest(x: Any, by: int) -> Any:
    return lax.rem(x, np.int32(by))


def forward(call: Call, q_ref: Any, k_ref: Any, v_ref: Any, *refs: Any) -> None:
    mask, seed, (out_ref, lse_ref, total_ref, top_ref, sum_ref) = call.optional(refs)
    head, i, j = _head(call), pallas.program_id(2), pallas.program_id(3)

    @pallas.when(j == 0)
    def start() -> None:
        total_ref[...] = jnp.zeros_like(total_ref)
        top_ref[...] = jnp.full_like(top_ref, _LOWEST)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    @pallas.when(is_seen(call, i, j))
    def add() -> None:
        scores = _scores(call, q_ref, k_ref, mask, i, j)
        old = top_ref[:, :1]
        top = jnp.maximum(old, jnp.max(scores, 1, keepdims=True))
        weights, fade = jnp.exp(scores - top), jnp.exp(old - top)
        keep = _kept(call, seed, head, i, j)
        sums = sum_ref[:, :1] * fade + jnp.sum(weights, 1, keepdims=True)
        if keep is not None:
            weights = jnp.where(keep, weights, 0)
        product = _dot(call, weights.astype(v_ref.dtype), v_ref[0, 0], _COLUMNS)
        total_ref[...] = total_ref[...] * fade + product
        top_ref[...] = jnp.broadcast_to(top, top_ref.shape)
        sum_ref[...] = jnp.broadcast_to(sums, sum_ref.shape)

    @pallas.when(j == call.blocks[1] - 1)
    def finish() -> None:
        sums = sum_ref[...]
        none = sums == 0
        out = total_ref[...] / jnp.where(none, 1, sums * (1 - call.dropout))[:, :1]
        out_ref[0, 0] = out.astype(out_ref.dtype)
        lse = jnp.where(none, 0, top_ref[...] + jnp.log(jnp.where(none, 1, sums)))
        lse_ref[0, 0] = lse.T[:1]


def backward_q(call: Call, q_ref: Any, k_ref: Any, v_ref: Any, *refs: Any) -> None:
    grad_ref, lse_ref, along_ref, *more = refs
    mask, seed, (out_ref, total_ref) = call.optional(more)
    head, i, j = _head(call), pallas.program_id(2), pallas.program_id(3)

    @pallas.when(j == 0)
    def start() -> None:
        total_ref[...] = jnp.zeros_like(total_ref)

    @pallas.when(is_seen(call, i, j))
    def add() -> None:
        scores = _scores(call, q_ref, k_ref, mask, i, j)
        keep = _kept(call, seed, head, i, j)
        _, of_scores = _weights(call, scores, keep, v_ref, grad_ref, lse_ref, along_ref)
        total_ref[...] += _dot(call, of_scores.astype(k_ref.dtype), k_ref[0, 0], _COLUMNS)

    @pallas.when(j == call.blocks[1] - 1)
    def finish() -> None:
        out_ref[0, 0] = total_ref[...].astype(out_ref.dtype)


def _weights(
    call: Call,
    scores: Array,
    keep: Array | None,
    v_ref: Any,
    grad_ref: Any,
    lse_ref: Any,
    along_ref: Any,
) -> tuple[Array, Array]:
    """The weights by which forward multiplied values, and the gradient of the scores."""
    weights = jnp.exp(scores - _column(lse_ref))
    of_weights, used = _dot(call, grad_ref[0, 0], v_ref[0, 0], _ROWS), weights
    if keep is not None:
        factor = jnp.where(keep, np.float32(1 / (1 - call.dropout)), np.float32(0))
        of_weights, used = of_weights * factor, weights * factor
    of_scores = weights * (of_weights - _column(along_ref)) * call.scale
    if call.cap is not None:
        bent = jnp.where(weights > 0, scores, 0) / call.cap  # not -inf, of what is masked
        of_scores = of_scores * (1 - bent * bent)
    return used, of_scores


def backward_kv(call: Call, q_ref: Any, k_ref: Any, v_ref: Any, *refs: Any) -> None:
    grad_ref, lse_ref, along_ref, *more = refs
    mask, seed, (of_k_ref, of_v_ref, k_total_ref, v_total_ref) = call.optional(more)
    j, n = pallas.program_id(2), pallas.program_id(3)
    i = rest(n, call.blocks[0])
    head = _head(call, quotient(n, call.blocks[0]))

    @pallas.when(n == 0)
    def start() -> None:
        k_total_ref[...] = jnp.zeros_like(k_total_ref)
        v_total_ref[...] = jnp.zeros_like(v_total_ref)

    @pallas.when(is_seen(call, i, j))
    def add() -> None:
        scores = _scores(call, q_ref, k_ref, mask, i, j)
        keep = _kept(call, seed, head, i, j)
        weights, of_scores = _weights(call, scores, keep, v_ref, grad_ref, lse_ref, along_ref)
        grad, q = grad_ref[0, 0], q_ref[0, 0]
        v_total_ref[...] += _dot(call, weights.T.astype(grad.dtype), grad, _COLUMNS)
        k_total_ref[...] += _dot(call, of_scores.T.astype(q.dtype), q, _COLUMNS)

    @pallas.when(n == call.blocks[0] * call.group - 1)
    def finish() -> None:
        of_k_ref[0, 0] = k_total_ref[...].astype(of_k_ref.dtype)
        of_v_ref[0, 0] = v_total_ref[...].astype(of_v_ref.dtype)


def _head(call: Call, of_group: Any = None) -> Any:
    """The number of this step's query head among those of all the batch.

    of_group: the grid's heads are those of keys, and it is this one of those that share it.
    """
    batch, head = pallas.program_id(0), pallas.program_id(1)
    if of_group is not None:
        head = head * call.group + of_group
    return batch * call.heads + head


def _kept(call: Call, seed: Any, head: Any, i: Any, j: Any) -> Array | None:
    """Which weights of a block dropout keeps; None: there is no dropout."""
    if seed is None:
        return None
    first = i * call.block[0], j * call.block[1]
    return dropout.kept((seed[0], seed[1]), head, first, call.block, call.dropout)


def _scores(call: Call, q_ref: Any, k_ref: Any, mask: Any, i: Any, j: Any) -> Array:
    """A block of scores, float32; -inf where a query does not see a key."""
    scores = _dot(call, q_ref[0, 0], k_ref[0, 0], _ROWS) * call.scale
    if call.cap is not None:
        scores = jnp.tanh(scores / call.cap) * call.cap
    row, column = call.block
    keep = None
    if mask is not None:
        of_mask = mask[0, 0]
        if of_mask.dtype == np.int8:
            keep = jnp.broadcast_to(of_mask.astype(np.int32), scores.shape) != 0
        else:
            scores = scores + of_mask
    columns = j * column + lax.broadcasted_iota(np.int32, scores.shape, 1)
    if call.is_causal:
        rows = i * row + lax.broadcasted_iota(np.int32, scores.shape, 0)
        keep = rows >= columns if keep is None else keep & (rows >= columns)
    if call.keys % column:
        keep = columns < call.keys if keep is None else keep & (columns < call.keys)
    return scores if keep is None else jnp.where(keep, scores, -jnp.inf)


def _column(ref: Any) -> Array:
    """A row of numbers as a column."""
    row = ref[0, 0]
    return jnp.broadcast_to(row, (LANES, row.shape[1])).T[:, :1]


def _dot(call: Call, x: Array, y: Array, numbers: Any) -> Array:
    # Not None, which is the program's precision: of 16 bits, kernels multiply in one way only.
    precision = call.precision if x.dtype == np.float32 else lax.Precision.DEFAULT
    return lax.dot_general(x, y, numbers, precision=precision, preferred_element_type=np.float32)
