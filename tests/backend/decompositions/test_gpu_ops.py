"""cuDNN's ops as the ops that they are elsewhere; on CPU tensors, whose results are known."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from xla_dynamo.backend.decompositions.gpu_ops import GPU_DECOMPOSITIONS

aten = torch.ops.aten


def test_a_warp_and_its_gradient() -> None:
    theta = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    grid = F.affine_grid(theta, [2, 3, 4, 4], align_corners=True)
    warped = F.grid_sample(x, grid, align_corners=True)
    grad = torch.randn_like(warped)
    of_grid, *expected = torch.autograd.grad(warped, (grid, theta, x), grad)

    made = GPU_DECOMPOSITIONS[aten.cudnn_affine_grid_generator.default](theta, 2, 3, 4, 4)
    torch.testing.assert_close(made, grid)
    torch.testing.assert_close(GPU_DECOMPOSITIONS[aten.cudnn_grid_sampler.default](x, grid), warped)
    sampled = GPU_DECOMPOSITIONS[aten.cudnn_grid_sampler_backward.default](x, grid, grad)
    of_theta = GPU_DECOMPOSITIONS[aten.cudnn_affine_grid_generator_backward.default]
    torch.testing.assert_close(sampled, (expected[1], of_grid))
    torch.testing.assert_close(of_theta(of_grid, 2, 3, 4, 4), expected[0])
