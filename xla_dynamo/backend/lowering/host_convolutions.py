"""Convolutions for which PyTorch's kernels, oneDNN's, take less time than XLA:CPU.

XLA:CPU's take up to ten times as long.

CPU time of PyTorch's kernel / of XLA:CPU's program, one thread of a Zen 4 (torch 2.13, jaxlib
0.10.2), forward and backward:

| convolution | float32 | bfloat16 | float64 |
|---|---|---|---|
| 3x3, 64 channels of 28x28 | 0.76, 0.95 | 0.47, 0.51 | 1.30, 0.85 |
| 3x3, 512 channels of 7x7 | 0.66, 0.90 | 0.35, 0.47 | 1.34, 1.40 |
| 3x3, stride 2 | 0.78, 0.73 | 0.42, 0.46 | 1.19, 0.18 |
| 1x1, 256 channels | 0.75, 0.44 | 0.42, 0.26 | 0.74, 0.81 |
| 16x16 patches | 0.83, 0.27 | 0.59, 0.16 | 1.24, 0.15 |
| depthwise 7x7 | 0.36, 0.67 | 0.35, 0.75 | 5.65, 0.57 |
| depthwise 3x3 | 1.81, 0.43 | 1.00, 0.14 | 9.02, 0.82 |
| four groups | 0.20, 0.24 | 0.17, 0.11 | 0.19, 0.24 |
| 1-d | 1.03, 0.75 | 0.44, 0.51 | 0.14, 0.21 |
| 3-d | 0.13, 0.09 | 0.07, 0.05 | 0.21, 0.33 |
| transposed 4x4, stride 2 | 0.83, 0.93 | 0.62, 0.41 | 0.18, 0.94 |

Depthwise ones of 3x3 on two cores of a Cascade Lake, milliseconds:

| | forward | gradients |
|---|---|---|
| 16 images, 64 channels of 48x48, stride 2 | 2.9, 5.3 | 6.2, 28 |
| 96 channels of 24x24 | 1.6, 2.4 | 3.8, 12 |
| 160 channels of 12x12 | 1.0, 1.6 | 2.1, 6.0 |
| 1 image, 96 channels of 24x24 | 0.4, 0.5 | 1.1, 2.4 |

On two cores of a Zen 3 those of 96 channels take 0.45, XLA's 0.59; the gradients 2.8, 7.4.

Beside others of oneDNN's, in a MobileNet with SiLU and 16 images, inference takes 97, so 64: XLA
computes what comes before such a convolution in the loop that pads it, element by element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import host_products

_LEAST_WORK = 5e6  # products; about 0.3 ms of XLA:CPU
_LEAST_DEPTHWISE = 1e6
_FEW_TAPS = 9


def forward(args: Sequence[Any], out: Any) -> bool:
    """Of `aten::convolution`."""
    x, weight, *_, is_transposed, _, groups = args
    if x.dtype == torch.float64 and x.dim() == 4 and not is_transposed:
        return _work(out, weight) >= _LEAST_WORK and 1 < groups < x.shape[1]
    if _is_depthwise(x, weight, groups) and math.prod(weight.shape[2:]) <= _FEW_TAPS:
        return _has_depthwise(x, is_transposed) and _work(out, weight) >= _LEAST_DEPTHWISE
    return _is_fast(x.dtype) and _work(x if is_transposed else out, weight) >= _LEAST_WORK


def backward(args: Sequence[Any], out: Any) -> bool:
    """Of `aten::convolution_backward`."""
    grad, x, weight, is_transposed, groups = *args[:3], args[7], args[9]
    is_depthwise = _is_depthwise(x, weight, groups) and _has_depthwise(x, is_transposed)
    least = _LEAST_DEPTHWISE if is_depthwise else _LEAST_WORK
    return _is_fast(x.dtype) and _work(x if is_transposed else grad, weight) >= least


def is_small(args: Sequence[Any], out: Any) -> bool:
    """Whether it matters little who computes a convolution of float32, or its gradients."""
    found = described(args, out)
    is_plain = found.image.dtype == torch.float32 and found.groups == 1 and not found.is_transposed
    return is_plain and _work(found.result, found.weight) < _LEAST_WORK


class Convolution(NamedTuple):
    """What a convolution takes and gives; of its gradients, `result` is that of the result."""

    image: torch.Tensor
    weight: torch.Tensor
    result: torch.Tensor
    is_transposed: bool
    groups: int


def described(args: Sequence[Any], out: Any) -> Convolution:
    """Of a call of `aten::convolution`, or of `aten::convolution_backward`."""
    if isinstance(out, torch.Tensor):
        return Convolution(args[0], args[1], out, args[6], args[8])
    return Convolution(args[1], args[2], args[0], args[7], args[9])


def _is_depthwise(x: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    return weight.shape[1] == 1 < groups == x.shape[1]


def _has_depthwise(x: torch.Tensor, is_transposed: bool) -> bool:
    """Whether oneDNN has a fast depthwise kernel of few taps, on a CPU where it was measured."""
    is_plain = x.dtype == torch.float32 and x.dim() == 4 and not is_transposed
    return is_plain and host_products.mkl() is not None


def _is_fast(dtype: torch.dtype) -> bool:
    """Whether PyTorch has a kernel of this CPU's own instructions."""
    if dtype == torch.bfloat16:
        return host_products.has_bfloat16()
    return dtype in (torch.float32, torch.float64)


def _work(small: torch.Tensor, weight: torch.Tensor) -> int:
    """Products: each element of a convolution's smaller side meets each weight of its channel."""
    return small.shape[0] * math.prod(small.shape[2:]) * weight.numel()
