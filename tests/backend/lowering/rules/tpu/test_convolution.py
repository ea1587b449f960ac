"""Convolutions in their form for TPUs, computed on the CPU, against eager."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from tests.like_eager.rules import check
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules import convolution

aten = torch.ops.aten

# name: (input, weight, stride, padding, dilation, transposed, output_padding, groups)
CASES: dict[str, tuple[Any, ...]] = {
    "patches": ((2, 3, 8, 12), (5, 3, 4, 3), [4, 3], [0, 0], [1, 1], False, [0, 0], 1),
    "patches with a rest": ((2, 3, 8, 11), (5, 3, 4, 3), [4, 3], [0, 0], [1, 1], False, [0, 0], 1),
    "with rows that rest": ((2, 3, 9, 12), (5, 3, 4, 3), [4, 3], [0, 0], [1, 1], False, [0, 0], 1),
    "patches of rows": ((2, 3, 8, 3), (5, 3, 4, 1), [4, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "patches in 3d": ((2, 2, 4, 6, 4), (3, 2, 2, 3, 2), [2, 3, 2], [0] * 3, [1] * 3, False, [0], 1),
    "of many channels": ((1, 9, 4, 4), (5, 9, 2, 2), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
    "transposed patches": ((2, 5, 2, 3), (5, 3, 4, 3), [4, 3], [0, 0], [1, 1], True, [0, 0], 1),
    "pointwise": ((2, 3, 5, 4), (4, 3, 1, 1), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "strided pointwise": ((2, 3, 6, 5), (4, 3, 1, 1), [2, 3], [0, 0], [1, 1], False, [0, 0], 1),
    "padded pointwise": ((2, 3, 6, 5), (4, 3, 1, 1), [2, 3], [1, 0], [1, 1], False, [0, 0], 1),
    "pointwise in 1d": ((2, 3, 6), (4, 3, 1), [1], [0], [1], False, [0], 1),
    "transposed pointwise": ((2, 3, 5, 4), (3, 4, 1, 1), [2, 2], [0, 0], [1, 1], True, [1, 0], 1),
    "grouped pointwise": ((2, 4, 5, 4), (6, 2, 1, 1), [1, 1], [0, 0], [1, 1], False, [0, 0], 2),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_like_eager(case: tuple[Any, ...]) -> None:
    x, weight = torch.randn(case[0]), torch.randn(case[1])
    with lowering_for(Target("tpu")):
        check(aten.convolution.default, x, weight, None, *case[2:])
        grad = torch.randn_like(aten.convolution.default(x, weight, None, *case[2:]))
        masks = [True, True, False]
        check(aten.convolution_backward.default, grad, x, weight, None, *case[2:], masks)


def test_rows_of_patches_are_channels() -> None:
    how = convolution.Settings([4, 4], [0, 0], [1, 1], 1)
    with lowering_for(Target("tpu")):
        text = str(jax.make_jaxpr(lambda x, w: convolution.correlate(x, w, how))(*_patches()))
    assert "f32[2,12,2,8]" in text
    assert "f32[5,12,1,4]" in text


def _patches() -> tuple[jax.Array, jax.Array]:
    return jax.numpy.ones((2, 3, 8, 8)), jax.numpy.ones((5, 3, 4, 4))
