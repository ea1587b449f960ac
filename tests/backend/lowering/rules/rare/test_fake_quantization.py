"""fake_quantize_* against eager."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.rare.fake_quantization  # noqa: F401
from tests.like_eager.rules import check

aten = torch.ops.aten
RANGE = (-20, 25)


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    # Halves of steps round to even; the ends lie beyond the range.
    return torch.cat([torch.arange(-60, 60) / 20, torch.randn(40)]).reshape(4, 40).to(dtype)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_per_tensor(dtype):
    op = aten.fake_quantize_per_tensor_affine_cachemask.default
    check(op, _numbers(dtype), 0.1, 3, *RANGE)
    check(op, torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=dtype), 0.1, 3, 0, 9)
    check(op, torch.empty(0, 2, dtype=dtype), 0.1, 3, *RANGE)


@pytest.mark.parametrize("enabled", [0, 1])
def test_scale_in_a_tensor(enabled):
    check(
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
        *(_numbers(torch.float32), torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32)),
        *(torch.tensor([enabled]), *RANGE),
    )


@pytest.mark.parametrize("zero_points", [torch.int32, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_per_channel(axis, dtype, zero_points):
    x = _numbers(dtype) if axis == 0 else _numbers(dtype).T.contiguous()
    scale, zero = torch.tensor([0.1, 0.05, 0.3, 1.0]), torch.tensor([0, 3, -2, 1])
    op = aten.fake_quantize_per_channel_affine_cachemask.default
    check(op, x, scale, zero.to(zero_points), axis, *RANGE)


def test_trains_through_the_grid():
    x = torch.linspace(-3, 3, 50).requires_grad_()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 3, *RANGE).square().sum()

    options = {"fallback": "error"}
    (mine,) = torch.autograd.grad(torch.compile(loss, backend="xla", options=options)(x), x)
    (eager,) = torch.autograd.grad(loss(x), x)
    torch.testing.assert_close(mine, eager)
