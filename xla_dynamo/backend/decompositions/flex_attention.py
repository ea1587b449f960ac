"""flex_attention by the math of PyTorch's eager implementation, which autograd differentiates.

The scores of all pairs are made, changed by score_mod and mask_mod, which torch.vmap calls with all
indices, and XLA fuses what it can of that. The block mask only says which blocks mask_mod leaves
empty: its blocks are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend.graph.torch_private import math_attention

FLEX_ATTENTION: Any = torch.ops.higher_order.flex_attention


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[Tensor, ...]:
    """The output, laid out as the query is; log2 of the sums of exponentials; maxima of scores.

    The maxima are not there where PyTorch is too old to have them.
    """
    buffers = score_mod_other_buffers, mask_mod_other_buffers
    out, sums, *maxima = math_attention(
        query, key, value, score_mod, block_mask, scale, kernel_options, *buffers
    )
    return _laid_out_as(query, out), sums, *(each.detach() for each in maxima)


def _laid_out_as(query: Tensor, out: Tensor) -> Tensor:
    """`out` with the order of the query's dimensions in memory, the features innermost."""
    strides = query.stride()
    order = [*sorted(range(3), key=lambda dim: strides[dim], reverse=True), 3]
    if order == [0, 1, 2, 3]:
        return out
    return out.permute(order).contiguous().permute([order.index(dim) for dim in range(4)])


def scattered(shape: list[int], indices: list[Tensor], values: Tensor) -> Tensor:
    """flex_lib.zeros_and_scatter, the gradient of what score_mod picks from a tensor."""
    return torch.ops.aten.index_put(values.new_zeros(shape), indices, values, accumulate=True)
