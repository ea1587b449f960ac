"""The attention functions of torch_xla's TPU kernels, as PyTorch's own attention.

On a TPU that is a kernel, too, for long sequences; elsewhere, ordinary ops that XLA fuses.

Also torch_xla.experimental.splash_attention.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import torch

from xla_dynamo.errors import NotAvailable

from ._grouped_matmul import gmm as gmm
from ._grouped_matmul import gmm_backward as gmm_backward
from ._grouped_matmul import tgmm as tgmm
from ._paged_attention import multi_queries_paged_attention as multi_queries_paged_attention
from ._paged_attention import paged_attention as paged_attention
from ._paged_attention import ragged_paged_attention as ragged_paged_attention
from ._pallas import make_kernel_from_pallas as make_kernel_from_pallas
from ._pallas import trace_pallas as trace_pallas
from .xla_quantized_matmul import quantized_matmul_int8 as quantized_matmul_int8


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    q_segment_ids: torch.Tensor | None = None,
    kv_segment_ids: torch.Tensor | None = None,
    sm_scale: float = 1.0,
    *,
    ab: torch.Tensor | None = None,
    partition_spec: Any = None,
    mesh: Any = None,
) -> torch.Tensor:
    """softmax(q kᵀ · sm_scale + ab) v for (batch, heads, length, width), within equal segments."""
    mask = ab
    if q_segment_ids is not None and kv_segment_ids is not None:
        same = q_segment_ids[:, None, :, None] == kv_segment_ids[:, None, None, :]
        mask = _and(mask, same, q)
    if causal and mask is not None:
        shape = q.shape[-2], k.shape[-2]
        mask = _and(mask, torch.ones(shape, dtype=torch.bool, device=q.device).tril(), q)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=float(sm_scale)
    )


def _and(bias: torch.Tensor | None, allowed: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The additive mask that also forbids what is not `allowed`."""
    least = torch.finfo(q.dtype).min
    blocked = torch.zeros((), dtype=q.dtype, device=q.device).masked_fill(~allowed, least)
    return blocked if bias is None else (bias + blocked).clamp(min=least)


class FlashAttention:
    """`FlashAttention.apply(...)` is flash_attention."""

    @staticmethod
    def apply(q: Any, k: Any, v: Any, causal: bool = False, *rest: Any) -> torch.Tensor:
        """flash_attention, with arguments by position."""
        names = ("q_segment_ids", "kv_segment_ids", "sm_scale", "ab", "partition_spec", "mesh")
        return flash_attention(q, k, v, causal, **dict(zip(names, rest, strict=False)))


@dataclass
class SplashAttentionConfig:
    """Block sizes of the TPU kernel, without effect here, and the sliding window, which has one."""

    sa_block_q: int = 2048
    sa_block_kv: int = 2048
    sa_block_kv_compute: int = 2048
    sa_block_q_dkv: int = 2048
    sa_block_kv_dkv: int = 2048
    sa_block_kv_dkv_compute: int = 2048
    sa_block_q_dq: int = 2048
    sa_block_kv_dq: int = 2048
    sa_use_fused_bwd_kernel: bool = True
    sa_q_layout: str = "HEAD_DIM_MINOR"
    sa_k_layout: str = "HEAD_DIM_MINOR"
    sa_v_layout: str = "HEAD_DIM_MINOR"
    mesh: str | None = None
    qkv_partition_spec: Any = (("data", "fsdp"), None, None, None)
    segment_ids_partition_spec: Any = (("data", "fsdp"), None)
    attentiontype_local_sliding: bool = False
    slide_window_size: int | None = None

    def to_json(self) -> str:
        """What splash_attention takes."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, data: str) -> SplashAttentionConfig:
        """The inverse of to_json."""
        return cls(**json.loads(data))


def splash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    config: str,
    decoder_segment_ids: torch.Tensor | None = None,
    causal: bool = True,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """softmax(q kᵀ) v for (batch, heads, length, width); scores are not scaled."""
    settings = SplashAttentionConfig.from_json(config)
    allowed = _allowed(q.shape[2], k.shape[2], q.device, causal, settings)
    if decoder_segment_ids is not None:
        ids = decoder_segment_ids
        allowed = allowed & (ids[:, None, :, None] == ids[:, None, None, :])
    if attn_logits_soft_cap is None:
        is_plain = decoder_segment_ids is None and not settings.attentiontype_local_sliding
        masks: dict[str, Any] = {"attn_mask": _and(None, allowed, q)}
        if is_plain and (not causal or q.shape[2] == k.shape[2]):
            masks = {"is_causal": causal}
        shared = q.shape[1] != k.shape[1]
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, scale=1.0, enable_gqa=shared, **masks
        )
    allowed = allowed if allowed.dim() == 4 else allowed[None, None]
    capped = torch.ops.xla_dynamo.capped_attention
    return capped(q, k, v, allowed, 1.0, float(attn_logits_soft_cap))[0]


def _allowed(
    queries: int, keys: int, device: torch.device, causal: bool, settings: SplashAttentionConfig
) -> torch.Tensor:
    distance = torch.arange(queries, device=device)[:, None] - torch.arange(keys, device=device)
    allowed = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if settings.attentiontype_local_sliding and settings.slide_window_size is not None:
        allowed = allowed & (distance < settings.slide_window_size)
    return allowed


def repeat_with_fixed_output_size(
    input: torch.Tensor, repeats: torch.Tensor, total_repeat_length: int
) -> torch.Tensor:
    """input[i] repeats[i] times, one after the other, cut or filled up to (total_repeat_length,).

    input and repeats (integers): (n,), n > 0. What is missing is filled with input[-1].
    """
    ends = repeats.cumsum(0)
    places = torch.arange(total_repeat_length, device=input.device)
    index = torch.searchsorted(ends, places, right=True)
    return input[index.clamp(max=input.shape[0] - 1)]


def jax_import_guard() -> None:
    """Nothing: jax is what runs this."""


def requires_jax(function: Any) -> Any:
    """A decorator that changes nothing: jax is what runs this."""
    return function


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotAvailable(
        f"custom_kernel.{name} is a TPU kernel of torch_xla that is not here: write it with "
        "ordinary torch ops, or call a JAX one by torch_xla.core.xla_builder.call_jax"
    )
