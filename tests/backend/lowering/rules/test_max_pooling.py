"""Max pooling and adaptive max pooling against eager: values, indices and gradients."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
import torch

from tests.like_eager.rules import check
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules import _windows, max_pooling

aten = torch.ops.aten

# name: (input, kernel, stride, padding, dilation, ceil_mode)
CASES = {
    "plain": ((2, 3, 8, 9), [2, 2], [2, 2], [0, 0], [1, 1], False),
    "default stride": ((2, 3, 8, 9), [3, 2], [], [0, 0], [1, 1], False),
    "one setting": ((2, 3, 8, 9), [3], [2], [1], [1], False),
    "unbatched": ((3, 8, 9), [2, 2], [2, 2], [1, 1], [1, 1], False),
    "resnet": ((2, 3, 9, 8), [3, 3], [2, 2], [1, 1], [1, 1], False),
    "dilated": ((2, 3, 11, 12), [3, 2], [2, 1], [1, 1], [2, 3], False),
    "ceil": ((2, 3, 8, 10), [3, 3], [3, 2], [1, 0], [1, 1], True),
    "ceil drops a window": ((1, 2, 5, 5), [2, 2], [3, 3], [1, 1], [1, 1], True),
    "ceil dilated": ((1, 2, 9, 8), [2, 3], [3, 2], [1, 1], [3, 2], True),
    "large window": ((1, 2, 20, 21), [9, 10], [2, 3], [4, 5], [1, 1], False),
    "huge window": ((1, 1, 40, 3), [36, 3], [2, 1], [0, 1], [1, 1], False),
    "gaps": ((1, 2, 9, 9), [1, 2], [3, 4], [0, 0], [1, 1], False),
    "3d": ((2, 2, 5, 6, 7), [2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 2], False),
    "3d ceil": ((2, 5, 6, 7), [2, 2, 2], [2, 2, 2], [0, 1, 0], [1, 1, 1], True),
    "empty batch": ((0, 3, 8, 9), [2, 2], [2, 2], [0, 0], [1, 1], False),
}


def _ops(settings):
    if len(settings[0]) == 3:
        return (
            aten.max_pool3d_with_indices.default,
            aten.max_pool3d_with_indices_backward.default,
        )
    return aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default


def _inputs(shape, dtype=torch.float32):
    """Random numbers with many ties."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_forward_and_backward(case):
    shape, *settings = case
    forward, backward = _ops(settings)
    x = _inputs(shape)
    check(forward, x, *settings)
    values, indices = forward(x, *settings)
    check(backward, torch.randn(values.shape), x, *settings, indices)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_backward_by_select_and_scatter(case):
    shape, *settings = case
    forward, backward = _ops(settings)
    x = _inputs(shape)
    values, indices = forward(x, *settings)

    with lowering_for(Target("tpu")):
        check(backward, torch.randn(values.shape), x, *settings, indices)


@pytest.mark.parametrize("name", ["plain", "resnet", "ceil", "3d"])
def test_indices_are_found_where_values_are_rounded_otherwise(name, monkeypatch):
    """XLA:CPU may compute the pool's input twice, with a product and a sum in one op or two."""
    shape, *settings = CASES[name]
    forward, _ = _ops(settings)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    rank = len(settings[0])
    found = max_pooling.max_pool_with_indices(rank, jnp.asarray(x), *settings)[1]
    plain = _windows.window_max
    monkeypatch.setattr(_windows, "window_max", lambda x, over: plain(x, over) * (1 + 1e-6))
    values, indices = max_pooling.max_pool_with_indices(rank, jnp.asarray(x), *settings)
    want = forward(x, *settings)
    assert not torch.equal(torch.tensor(values.tolist()), want[0])
    assert indices.tolist() == found.tolist() == want[1].tolist()


@pytest.mark.parametrize("name", ["resnet", "ceil", "large window", "3d"])
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8]
)
def test_dtypes(name, dtype):
    shape, *settings = CASES[name]
    forward, backward = _ops(settings)
    x = _inputs(shape, dtype)
    check(forward, x, *settings)
    if dtype.is_floating_point:
        values, indices = forward(x, *settings)
        check(backward, torch.randint(-3, 4, values.shape).to(dtype), x, *settings, indices)


@pytest.mark.parametrize("kernel", [[3, 3], [9, 9]])
@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf")])
def test_non_finite(kernel, special):
    x = torch.randn(1, 2, 12, 12, generator=torch.Generator().manual_seed(0))
    x[0, 0, ::3, ::2] = special
    x[0, 1] = special
    check(aten.max_pool2d_with_indices.default, x, kernel, [2, 2], [1, 1])


def test_lowest_values_dilated():
    x = torch.full((1, 1, 9, 9), -float("inf"))
    check(aten.max_pool2d_with_indices.default, x, [3, 3], [1, 1], [1, 1], [2, 3])


ADAPTIVE = {
    "even": ((2, 3, 8, 6), [4, 3]),
    "uneven": ((2, 3, 7, 10), [3, 4]),
    "to one": ((2, 3, 7, 10), [1, 1]),
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
        (aten.adaptive_max_pool2d.default, aten.adaptive_max_pool2d_backward.default)
        if len(sizes) == 2
        else (aten.adaptive_max_pool3d.default, aten.adaptive_max_pool3d_backward.default)
    )
    x = _inputs(shape, dtype)
    check(forward, x, sizes)
    values, indices = forward(x, sizes)
    check(backward, torch.randint(-3, 4, values.shape).to(dtype), x, indices)


def test_uneven_windows_with_nan():
    x = torch.rand(2, 7, 9).masked_fill_(torch.rand(2, 7, 9) > 0.8, float("nan"))
    check(aten.adaptive_max_pool2d.default, x, [3, 4])
