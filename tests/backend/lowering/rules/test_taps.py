"""Correlations over tiny images as products per tap: the same numbers as eager convolution."""

from __future__ import annotations

import pytest
import torch
from rule_harness import check

from xla_dynamo.backend.lowering.rules import _taps

aten = torch.ops.aten
# image, kernel, stride, padding, dilation
CASES = [
    ((1, 1), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 2), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 2), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((4, 3), (3, 2), (2, 1), (1, 0), (1, 2)),
    ((4, 4), (1, 1), (3, 3), (0, 0), (1, 1)),
    ((3, 4), (3, 3), (1, 1), (4, 4), (1, 1)),
    ((4,), (5,), (2,), (3,), (1,)),
    ((2, 2, 2), (2, 3, 1), (1, 1, 2), (1, 1, 0), (1, 1, 1)),
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("image", "kernel", "stride", "padding", "dilation"), CASES)
def test_forward_and_gradients(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
) -> None:
    x = torch.randn(2, 3, *image, dtype=torch.float64)
    channels = (3, 5) if transposed else (5, 3)
    weight = torch.randn(*channels, *kernel, dtype=torch.float64)
    settings = (stride, padding, dilation, transposed, [0] * len(image), 1)
    try:
        out = aten.convolution.default(x, weight, None, *settings)
    except RuntimeError:
        assert transposed  # no positions are left
        return
    assert transposed or _taps.pays("cpu", image, kernel, 1)
    check(aten.convolution.default, x, weight, torch.randn(5).double(), *settings)
    grad = torch.randn_like(out)
    check(aten.convolution_backward.default, grad, x, weight, [5], *settings, [True] * 3)


def test_other_platforms_and_groups_keep_the_convolution() -> None:
    assert not _taps.pays("tpu", (2, 2), (3, 3), 1)
    assert not _taps.pays("cpu", (2, 2), (3, 3), 2)
    assert not _taps.pays("cpu", (7, 7), (3, 3), 1)
