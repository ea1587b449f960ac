"""Average and adaptive average pooling, and their gradients, against eager."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.average_pooling  # noqa: F401
from tests.like_eager.rules import check, check_rounding

aten = torch.ops.aten


# name: (input, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
CASES = {
    "plain": ((2, 3, 8, 9), [2, 2], [2, 2], [0, 0], False, True, None),
    "default stride": ((2, 3, 8, 9), [3, 2], [], [0, 0], False, True, None),
    "one setting": ((2, 3, 8, 9), [3], [2], [1], False, False, None),
    "unbatched": ((3, 8, 9), [2, 2], [2, 1], [1, 1], False, True, None),
    "excluded padding": ((2, 3, 9, 8), [3, 3], [2, 2], [1, 1], False, False, None),
    "ceil": ((2, 3, 8, 10), [3, 3], [3, 2], [1, 0], True, True, None),
    "ceil, excluded": ((2, 3, 8, 10), [3, 3], [3, 2], [1, 1], True, False, None),
    "ceil drops a window": ((1, 2, 5, 5), [2, 2], [3, 3], [1, 1], True, True, None),
    "ceil, tiled": ((1, 2, 5, 7), [2, 2], [2, 2], [0, 0], True, True, None),
    "divisor": ((2, 3, 8, 9), [3, 2], [2, 2], [1, 1], False, True, 5),
    "gaps": ((1, 2, 10, 9), [1, 2], [3, 4], [0, 0], False, True, None),
    "gaps at the end": ((1, 2, 11, 13), [2, 2], [2, 3], [0, 0], False, True, None),
    "huge window": ((1, 1, 40, 3), [36, 3], [2, 1], [0, 1], False, True, None),
    "3d": ((2, 2, 5, 6, 7), [2, 3, 2], [2, 1, 2], [1, 1, 0], False, False, None),
    "3d ceil": ((2, 5, 6, 7), [2, 2, 2], [2, 2, 2], [0, 1, 0], True, True, None),
    "3d divisor": ((1, 2, 5, 6, 7), [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, 3),
    "empty batch": ((0, 3, 8, 9), [2, 2], [2, 2], [0, 0], False, True, None),
}


def _ops(settings):
    if len(settings[0]) == 3:
        return aten.avg_pool3d.default, aten.avg_pool3d_backward.default
    return aten.avg_pool2d.default, aten.avg_pool2d_backward.default


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_forward_and_backward(case):
    shape, *settings = case
    forward, backward = _ops(settings)
    x = torch.randn(shape)
    check(forward, x, *settings)
    check(backward, torch.randn(forward(x, *settings).shape), x, *settings)


@pytest.mark.parametrize("name", ["plain", "excluded padding", "ceil"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(name, dtype):
    shape, *settings = CASES[name]
    forward, backward = _ops(settings)
    compare = check if dtype == torch.float64 else check_rounding
    x = torch.randn(shape).to(dtype)
    compare(forward, x, *settings)
    compare(backward, torch.randn(forward(x, *settings).shape).to(dtype), x, *settings)


def test_integers():
    x = torch.randint(-50, 50, (2, 3, 8, 9))
    check(aten.avg_pool2d.default, x, [3, 2], [2, 2], [1, 1], False, False)


def test_1d():
    check(aten.avg_pool1d.default, torch.randn(2, 3, 9), [3], [2], [1], True, False)
    check(aten.adaptive_avg_pool1d.default, torch.randn(2, 3, 9), [4])


ADAPTIVE = {
    "even": ((2, 3, 8, 6), [4, 3]),
    "uneven": ((2, 3, 7, 10), [3, 4]),
    "to one": ((2, 3, 7, 10), [1, 1]),
    "one axis even": ((2, 3, 8, 10), [4, 3]),
    "larger": ((2, 3, 4, 3), [6, 7]),
    "unbatched": ((3, 7, 10), [3, 5]),
    "3d even": ((1, 2, 4, 6, 6), [2, 3, 1]),
    "3d uneven": ((1, 2, 5, 6, 7), [2, 4, 3]),
}


@pytest.mark.parametrize("case", ADAPTIVE.values(), ids=ADAPTIVE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_adaptive(case, dtype):
    shape, sizes = case
    forward, backward = (
        (aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d_backward.default)
        if len(sizes) == 2
        else (aten._adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d_backward.default)
    )
    compare = check_rounding if dtype == torch.bfloat16 else check
    x = torch.randn(shape).to(dtype)
    compare(forward, x, sizes)
    compare(backward, torch.randn(forward(x, sizes).shape).to(dtype), x)


def test_adaptive_windows_keep_infinities_to_themselves():
    x = torch.arange(70.0).reshape(1, 1, 7, 10)
    x[0, 0, 3, 4], x[0, 0, 0, 0] = torch.inf, torch.nan
    check(aten._adaptive_avg_pool2d.default, x, [3, 4])
    check(aten._adaptive_avg_pool2d_backward.default, x[:, :, :3, :5], x)
