"""deform_conv2d and its gradients against F.grid_sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import run

from . import references


@pytest.mark.parametrize(("offset_groups", "groups", "use_mask"), [(1, 2, False), (3, 3, True)])
def test_convolution(offset_groups: int, groups: int, use_mask: bool) -> None:
    settings = 2, 1, 1, 2, 1, 2, groups, offset_groups, use_mask
    plane, taps = (4, 9), 6 * offset_groups
    shape = (2, taps, *plane) if use_mask else (2, 1)
    operands: list[Any] = [
        torch.randn(*size).double().requires_grad_()
        for size in ((2, 6, 7, 8), (12, 6 // groups, 3, 2), (2, 2 * taps, *plane), shape, (12,))
    ]
    want = references.deform_conv2d(*operands, *settings)
    torch.testing.assert_close(run("torchvision.deform_conv2d.default", *operands, *settings), want)
    grad = torch.randn_like(want)
    expected = torch.autograd.grad(want, operands, grad, allow_unused=True)
    got = run("torchvision._deform_conv2d_backward.default", grad, *operands, *settings)
    for actual, gradient in zip(got, expected, strict=True):
        torch.testing.assert_close(
            actual, torch.zeros(shape).double() if gradient is None else gradient
        )
