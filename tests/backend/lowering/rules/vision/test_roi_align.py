"""roi_align and ps_roi_align, and their gradients, against plain PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import run

from . import references
from .references import BOXES

BINS = (2, 3)


@pytest.mark.parametrize(("ratio", "aligned"), [(2, True), (-1, False)])
def test_points_of_bins(ratio: int, aligned: bool) -> None:
    x = torch.randn(2, 4, 7, 9).double().requires_grad_()
    want = references.roi_align(x, ratio, aligned, BINS)
    given = BOXES, 1.0, *BINS
    got = run("torchvision.roi_align.default", x, *given, ratio, aligned)
    torch.testing.assert_close(got, want)
    grad = torch.randn_like(want)
    (expected,) = torch.autograd.grad(want, x, grad)
    name = "torchvision._roi_align_backward.default"
    torch.testing.assert_close(run(name, grad, *given, *x.shape, ratio, aligned), expected)


def test_channels_of_bins() -> None:
    x = torch.randn(2, 2 * 6, 7, 9).double().requires_grad_()
    want = references.roi_align(x, 2, True, BINS, own=True)
    given = 1.0, *BINS, 2
    got, channels = run("torchvision.ps_roi_align.default", x, BOXES, *given)
    torch.testing.assert_close(got, want)
    assert channels[0].flatten().tolist() == list(range(12))
    grad = torch.randn_like(want)
    (expected,) = torch.autograd.grad(want, x, grad)
    name = "torchvision._ps_roi_align_backward.default"
    torch.testing.assert_close(run(name, grad, BOXES, channels, *given, *x.shape), expected)


def test_a_scale_is_that_of_the_boxes() -> None:
    x, name = torch.randn(2, 4, 7, 9).double(), "torchvision.roi_align.default"
    larger = BOXES * torch.tensor([1, 4, 4, 4, 4])
    one, other = (run(name, x, *boxes, *BINS, 2, True) for boxes in ((BOXES, 1.0), (larger, 0.25)))
    torch.testing.assert_close(one, other)


def test_no_boxes() -> None:
    x = torch.randn(2, 4, 7, 9)
    got = run("torchvision.roi_align.default", x, torch.zeros(0, 5), 1.0, *BINS, -1, True)
    assert got.shape == (0, 4, *BINS)
