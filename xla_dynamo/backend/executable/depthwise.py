"""Gradients of depthwise convolutions by oneDNN in channels_last memory, between programs.

For row-major tensors oneDNN has a fast kernel of 3 x 3 weights alone. For larger ones that of
channels_last takes a tenth to seven tenths of the time, the copies there and back included
(float32, two cores, 8 images: 7 x 7 of 48 channels of 32 x 32 8.6 ms, so 5.3; 5 x 5 of 240 channels
of 28 x 28, as EfficientNet has them, 86 ms, so 10).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_FEW_TAPS = 9


def convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, *options: Any
) -> tuple[Tensor | None, ...]:
    """`aten::convolution_backward`; the gradients are row-major, as they are in eager."""
    if not _pays(x, weight, options):
        return aten.convolution_backward.default(grad, x, weight, *options)
    grad, x = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (grad, x))
    found = aten.convolution_backward.default(grad, x, weight, *options)
    return tuple(None if each is None else each.contiguous() for each in found)


def _pays(x: Tensor, weight: Tensor, options: tuple[Any, ...]) -> bool:
    """Whether the gradient is one of a depthwise convolution of row-major images with many taps."""
    is_transposed, groups = options[4], options[6]
    is_depthwise = groups == x.shape[1] and weight.shape[1] == 1 and not is_transposed
    is_large = x.dim() == 4 and math.prod(weight.shape[2:]) > _FEW_TAPS
    return is_depthwise and is_large and x.dtype == torch.float32 and x.is_contiguous()


KERNELS: dict[Any, Callable[..., Any]] = {aten.convolution_backward.default: convolution_backward}
