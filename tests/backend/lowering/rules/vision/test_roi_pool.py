"""roi_pool and ps_roi_pool, and their gradients, against plain PyTorch."""

from __future__ import annotations

import torch

from tests.like_eager.rules import run

from . import references
from .references import BOXES

GIVEN = 1.0, 2, 3


def test_maxima() -> None:
    x = torch.randn(2, 4, 7, 9).double().requires_grad_()
    want = references.roi_pool(x, (2, 3))
    got, places = run("torchvision.roi_pool.default", x, BOXES, *GIVEN)
    torch.testing.assert_close(got, want)
    grad = torch.randn_like(want)
    (expected,) = torch.autograd.grad(want, x, grad)
    name = "torchvision._roi_pool_backward.default"
    torch.testing.assert_close(run(name, grad, BOXES, places, *GIVEN, *x.shape), expected)


def test_the_first_of_equal_pixels_is_the_place_and_bins_outside_have_none() -> None:
    _, places = run("torchvision.roi_pool.default", torch.ones(2, 1, 7, 9), BOXES, *GIVEN)
    assert places[5, 0, 0, 0] == 0
    assert (places[3] == -1).all()


def test_means() -> None:
    x = torch.randn(2, 2 * 6, 7, 9).double().requires_grad_()
    want = references.ps_roi_pool(x, (2, 3))
    got, channels = run("torchvision.ps_roi_pool.default", x, BOXES, *GIVEN)
    torch.testing.assert_close(got, want)
    assert channels[0].flatten().tolist() == list(range(12))


def test_gradients_of_means() -> None:
    """Of boxes that do not reach the last row and column, which eager's gradient takes in."""
    x = torch.randn(2, 2 * 6, 7, 9).double().requires_grad_()
    want = references.ps_roi_pool(x, (2, 3))
    inner = torch.tensor([4, 5])
    grad = torch.randn_like(want)
    chosen = torch.zeros(len(BOXES), 1, 1, 1).index_fill(0, inner, 1)
    (expected,) = torch.autograd.grad(want, x, grad * chosen)
    name = "torchvision._ps_roi_pool_backward.default"
    channels = torch.zeros(grad.shape, dtype=torch.int32)
    got = run(name, grad * chosen, BOXES, channels, *GIVEN, *x.shape)
    torch.testing.assert_close(got, expected)
