"""Gradients of depthwise convolutions are eager's, in whatever memory they are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.like_eager.compiled import assert_like_eager
from xla_dynamo.backend.executable import depthwise

aten = torch.ops.aten


def _gradients(
    of: Callable[..., Any], grad: Tensor, x: Tensor, conv: nn.Conv2d
) -> Sequence[Tensor | None]:
    """By `of`, an implementation of aten::convolution_backward."""
    sizes = [conv.out_channels] if conv.bias is not None else None
    options = (sizes, conv.stride, conv.padding, conv.dilation, False, (0, 0), conv.groups)
    return of(grad, x, conv.weight.detach(), *options, [True, True, conv.bias is not None])


CONVOLUTIONS = {
    "7x7": nn.Conv2d(8, 8, 7, padding=3, groups=8),
    "5x5, stride 2": nn.Conv2d(8, 8, 5, 2, 2, groups=8),
    "two of each channel": nn.Conv2d(8, 16, (5, 3), groups=8, bias=False),
    "dilated": nn.Conv2d(8, 8, 5, dilation=2, groups=8),
    "3x3": nn.Conv2d(8, 8, 3, groups=8),
    "groups": nn.Conv2d(8, 8, 5, groups=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_and_their_strides(name: str) -> None:
    conv = CONVOLUTIONS[name]
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 8, 14, 14).contiguous(memory_format=layout)
        grad = torch.randn_like(conv(x))
        found = _gradients(depthwise.convolution_backward, grad, x, conv)
        want = _gradients(aten.convolution_backward.default, grad, x, conv)
        for each, other in zip(found, want, strict=True):
            assert (each is None) is (other is None)
            if each is not None:
                torch.testing.assert_close(each, other)
                assert each.is_contiguous() is other.is_contiguous()


def test_a_large_one_in_a_compiled_step() -> None:
    conv = nn.Conv2d(16, 16, 7, padding=3, groups=16)
    x = torch.randn(8, 16, 32, 32, requires_grad=True)
    assert_like_eager(lambda x: conv(x.sin()).relu(), x)
