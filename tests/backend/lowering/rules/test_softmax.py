"""Softmax, log-softmax and their gradients against eager."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.softmax  # noqa: F401
from tests.like_eager.rules import check, check_rounding, run

aten = torch.ops.aten

FORWARD = [aten._softmax.default, aten._log_softmax.default]
BACKWARD = [aten._softmax_backward_data.default, aten._log_softmax_backward_data.default]


@pytest.mark.parametrize(("forward", "backward"), list(zip(FORWARD, BACKWARD, strict=True)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("shape", "dim"), [((3, 5), -1), ((3, 5, 2), 1), ((), 0), ((), -1), ((0, 4), 1), ((4, 0), 1)]
)
def test_forward_and_backward(forward, backward, dtype, shape, dim):
    compare = check_rounding if dtype in (torch.bfloat16, torch.float16) else check
    x = (10 * torch.randn(shape)).to(dtype)
    compare(forward, x, dim, False)
    out = forward(x, dim, False)
    if dtype in (torch.float32, torch.float64):
        check(backward, torch.randn_like(out), out, dim, dtype)
    else:
        grad = torch.randn_like(out)
        exact = backward(grad.float(), out.float(), dim, torch.float32)
        torch.testing.assert_close(run(backward, grad, out, dim, dtype), exact.to(dtype))


@pytest.mark.parametrize("forward", FORWARD)
@pytest.mark.parametrize("special", [float("inf"), -float("inf"), float("nan")])
def test_non_finite(forward, special):
    x = torch.randn(3, 4)
    x[0, 1] = special
    x[1] = special
    check(forward, x, 1, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_softmax(dtype):
    x = torch.randn(2, 4, 3, 3, dtype=dtype)
    square = torch.tensor([[True, False, True], [True, True, True], [False, False, False]])
    whole = square.expand_as(x).contiguous()
    keys = torch.tensor([[True, False, False], [False, False, True]])
    op = torch.ops.aten._masked_softmax.default
    check(op, x, square, 3, 0)
    check(op, x, keys, -1, 1)
    check(op, x, whole)
    check(op, x, whole, 0, 2)
    for dim in (None, 3, 1):
        output = op(x, whole, dim, 2)
        backward = torch.ops.aten._masked_softmax_backward.default
        check(backward, torch.randn_like(x), output, whole, dim)
