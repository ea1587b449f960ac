"""Grid sampling and its gradients against eager."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.like_eager.rules import check, run
from xla_dynamo.backend.lowering.registry import Unsupported
from xla_dynamo.backend.lowering.rules import grid_sampling  # noqa: F401

aten = torch.ops.aten

MODES = list(itertools.product(range(3), range(3), (True, False)))


@pytest.mark.parametrize(("interpolation", "padding", "align"), MODES)
def test_images(interpolation, padding, align):
    x, grid = torch.randn(2, 3, 5, 4).double(), 1.7 * torch.randn(2, 3, 6, 2).double()
    settings = (interpolation, padding, align)
    check(aten.grid_sampler_2d.default, x, grid, *settings)
    args = (torch.randn(2, 3, 3, 6).double(), x, grid, *settings, [True, True])
    check(aten.grid_sampler_2d_backward.default, *args)


@pytest.mark.parametrize(("interpolation", "padding", "align"), [m for m in MODES if m[0] < 2])
def test_volumes(interpolation, padding, align):
    x, grid = torch.randn(2, 3, 4, 3, 5).double(), 1.5 * torch.randn(2, 2, 3, 2, 3).double()
    settings = (interpolation, padding, align)
    check(aten.grid_sampler_3d.default, x, grid, *settings)
    args = (torch.randn(2, 3, 2, 3, 2).double(), x, grid, *settings, [True, True])
    check(aten.grid_sampler_3d_backward.default, *args)


@pytest.mark.parametrize("padding", range(3))
@pytest.mark.parametrize("align", [True, False])
def test_far_outside_and_single_pixels(padding, align):
    far = torch.tensor([1e4, -1e4, 1.0, -1.0, 0.0])[None, None, :, None]
    grid = torch.cat([far, torch.zeros_like(far)], -1)
    for width in (4, 1):
        x = torch.randn(1, 2, 3, width)
        check(aten.grid_sampler_2d.default, x, grid, 0, padding, align)


def test_output_mask():
    x, grid, grad = torch.randn(1, 1, 3, 3), torch.rand(1, 2, 2, 2), torch.randn(1, 1, 2, 2)
    args = (grad, x, grid, 0, 0, False, [False, True])
    assert run(aten.grid_sampler_2d_backward.default, *args)[0] is None


def test_cubic_volumes():
    with pytest.raises(Unsupported, match="cubic"):
        run(
            aten.grid_sampler_3d.default,
            *(torch.zeros(1, 1, 2, 2, 2), torch.zeros(1, 1, 1, 1, 3), 2, 0, False),
        )


@pytest.mark.parametrize(("interpolation", "padding"), itertools.product((0, 1), (1, 2)))
def test_a_place_that_is_no_number_is_the_first(interpolation, padding):
    """Which F.grid_sample documents."""
    x, nan = torch.arange(16.0).reshape(1, 1, 4, 4), float("nan")
    grid = torch.tensor([[nan, 0.5], [0.5, nan], [nan, nan], [0.5, 0.5]] * 4)[None, None]
    check(aten.grid_sampler_2d.default, x, grid, interpolation, padding, False)
