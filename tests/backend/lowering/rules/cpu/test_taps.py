"""Correlations over tiny images as products per tap: the same numbers as eager convolution."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
import torch

from tests.like_eager.rules import check
from xla_dynamo.backend.lowering.rules.cpu import convolution, taps

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
    assert transposed or taps.pays(image, kernel, 1)
    check(aten.convolution.default, x, weight, torch.randn(5).double(), *settings)
    grad = torch.randn_like(out)
    check(aten.convolution_backward.default, grad, x, weight, [5], *settings, [True] * 3)


@pytest.mark.parametrize("batch", [2, 0])
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("image", "kernel", "stride", "padding", "dilation"), CASES)
def test_gradient_of_a_grouped_weight(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    extra: int,
    batch: int,
) -> None:
    x = torch.randn(batch, 6, *image, dtype=torch.float64)
    weight = torch.randn(6, 2, *kernel, dtype=torch.float64)
    assert convolution.by_taps(x, weight.shape, 3)
    margins = [extra if transposed and s > 1 else 0 for s in stride]
    settings = (stride, padding, dilation, transposed, margins, 3)
    try:
        grad = torch.randn_like(aten.convolution.default(x, weight, None, *settings))
    except RuntimeError:
        assert transposed  # no positions are left
        return
    mask = [False, True, False]
    check(aten.convolution_backward.default, grad, x, weight, None, *settings, mask)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("batch", [2, 0])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("image", "kernel", "stride", "padding", "dilation"), CASES)
def test_depthwise(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    batch: int,
    outputs: int,
) -> None:
    channels = 4 * outputs if transposed else 4
    x = torch.randn(batch, channels, *image, dtype=torch.float64)
    weight = torch.randn(4 * outputs, 1, *kernel, dtype=torch.float64)
    groups = 4 * outputs if transposed else 4
    assert taps.pays_for_depthwise(weight.shape, groups)
    settings = (stride, padding, dilation, transposed, [0] * len(image), groups)
    try:
        grad = torch.randn_like(aten.convolution.default(x, weight, None, *settings))
    except RuntimeError:
        assert transposed  # no positions are left
        return
    check(aten.convolution.default, x, weight, None, *settings)
    mask = [True, True, False]
    check(aten.convolution_backward.default, grad, x, weight, None, *settings, mask)


def test_other_groups_and_sizes_keep_the_convolution() -> None:
    assert not taps.pays((2, 2), (3, 3), 2)
    assert not taps.pays((7, 7), (3, 3), 1)
    assert not taps.pays_for_depthwise((6, 2, 3, 3), 3)
    assert not taps.pays_for_depthwise((6, 1, 3, 3), 1)
    assert not taps.pays_for_depthwise((6, 1, 9, 9), 6)
    x = jnp.zeros((1, 6, 4, 4), jnp.float32)
    assert not convolution.by_taps(x, (6, 1, 3, 3), 6)
    assert not convolution.by_taps(x, (6, 2, 3, 3), 1)
