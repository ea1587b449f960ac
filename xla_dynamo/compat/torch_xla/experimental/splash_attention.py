"""splash_attention: attention within segments and windows, as ordinary ops that XLA fuses."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import torch

from .custom_kernel import softmax


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
    repeat = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, keys)
    allowed = _allowed(q.shape[2], k.shape[2], q.device, causal, settings)
    if decoder_segment_ids is not None:
        ids = decoder_segment_ids
        allowed = allowed & (ids[:, None, :, None] == ids[:, None, None, :])
    weights = softmax(scores, allowed, attn_logits_soft_cap)
    return torch.einsum("bhqk,bhkd->bhqd", weights, values)


def _allowed(
    queries: int, keys: int, device: torch.device, causal: bool, settings: SplashAttentionConfig
) -> torch.Tensor:
    distance = torch.arange(queries, device=device)[:, None] - torch.arange(keys, device=device)
    allowed = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if settings.attentiontype_local_sliding and settings.slide_window_size is not None:
        allowed = allowed & (distance < settings.slide_window_size)
    return allowed
