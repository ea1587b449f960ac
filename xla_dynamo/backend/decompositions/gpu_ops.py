"""ATen's ops for cuDNN, as the ops that they are on other devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_BILINEAR, _ZEROS = 0, 0  # grid_sampler's modes that cuDNN has, with aligned corners


def _grid_sampler(x: Tensor, grid: Tensor) -> Tensor:
    return aten.grid_sampler_2d.default(x, grid, _BILINEAR, _ZEROS, True)


def _grid_sampler_backward(x: Tensor, grid: Tensor, grad: Tensor) -> Any:
    modes, both = (_BILINEAR, _ZEROS, True), [True, True]
    return aten.grid_sampler_2d_backward.default(grad, x, grid, *modes, both)


def _affine_grid(theta: Tensor, n: int, c: int, h: int, w: int) -> Tensor:
    return aten.affine_grid_generator.default(theta, [n, c, h, w], True)


def _affine_grid_backward(grad: Tensor, n: int, c: int, h: int, w: int) -> Tensor:
    return aten.affine_grid_generator_backward.default(grad, [n, c, h, w], True)


GPU_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.cudnn_grid_sampler.default: _grid_sampler,
    aten.cudnn_grid_sampler_backward.default: _grid_sampler_backward,
    aten.cudnn_affine_grid_generator.default: _affine_grid,
    aten.cudnn_affine_grid_generator_backward.default: _affine_grid_backward,
}
