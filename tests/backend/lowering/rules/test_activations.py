"""Activations that PyTorch keeps whole, and their gradients, against eager."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.activations  # noqa: F401
from tests.like_eager.rules import check

aten = torch.ops.aten

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

FORWARD = {
    "gelu": (aten.gelu.default, (), {}),
    "gelu tanh": (aten.gelu.default, (), {"approximate": "tanh"}),
    "elu": (aten.elu.default, (), {}),
    "selu": (aten.elu.default, (1.6732632423543772, 1.0507009873554805), {}),
    "celu": (aten.elu.default, (0.5, 1, 2.0), {}),
    "leaky_relu": (aten.leaky_relu.default, (0.2,), {}),
    "hardtanh": (aten.hardtanh.default, (-0.5, 2), {}),
}
BACKWARD = {
    "gelu": (aten.gelu_backward.default, (), {}),
    "gelu tanh": (aten.gelu_backward.default, (), {"approximate": "tanh"}),
    "hardshrink": (aten.hardshrink_backward.default, (0.5,), {}),
    "softshrink": (aten.softshrink_backward.default, (0.5,), {}),
}


def _numbers(dtype):
    special = [0.0, -0.0, 0.5, -0.5, 30.0, -30.0, float("inf"), float("nan")]
    generator = torch.Generator().manual_seed(0)
    return torch.cat([torch.tensor(special), 3 * torch.randn(50, generator=generator)]).to(dtype)


@pytest.mark.parametrize(("op", "args", "kwargs"), FORWARD.values(), ids=FORWARD)
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward(op, args, kwargs, dtype):
    x = _numbers(dtype)
    if op == aten.gelu.default:
        x = x[~x.isinf()]  # eager's answer for infinity depends on how many numbers there are
    check(op, x, *args, **kwargs)
    check(op, x[-1], *args, **kwargs)


@pytest.mark.parametrize(("op", "args", "kwargs"), BACKWARD.values(), ids=BACKWARD)
@pytest.mark.parametrize("dtype", DTYPES)
def test_backward(op, args, kwargs, dtype):
    x = _numbers(dtype)
    x = x[x.isfinite()]
    check(op, torch.linspace(-2, 2, len(x)).to(dtype), x, *args, **kwargs)


@pytest.mark.parametrize(("op", "args", "kwargs"), BACKWARD.values(), ids=BACKWARD)
@pytest.mark.parametrize("dtypes", [DTYPES[2::-2], DTYPES[3::-2]], ids=str)
def test_backward_of_two_dtypes(op, args, kwargs, dtypes):
    """Computed in the wider one, and rounded to no other."""
    x = torch.linspace(-3, 3, 40).to(dtypes[1])
    check(op, torch.linspace(-2, 2, 40).to(dtypes[0]), x, *args, **kwargs)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
def test_hardtanh_of_integers(dtype):
    check(aten.hardtanh.default, torch.arange(-5, 5).to(dtype), -2, 3)


@pytest.mark.parametrize("training", [True, False])
def test_rrelu_backward(training):
    x = _numbers(torch.float32)[:6]
    noise = torch.tensor([1, 0.2, 1, 0.3, 1, 0.25])
    args = (torch.linspace(-1, 1, 6), x, noise, 0.125, 0.4, training, False)
    check(aten.rrelu_with_noise_backward.default, *args)
