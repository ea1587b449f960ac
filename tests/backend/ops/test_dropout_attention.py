"""The body of the op, which eager runs."""

from __future__ import annotations

import math

import torch

import xla_dynamo.backend.ops  # noqa: F401  (registers it)


def test_the_op_in_eager() -> None:
    """With values that give the weights back, what is dropped can be read."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 4, 6, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.eye(6, 8, dtype=torch.float64).expand(1, 4, 6, 8).clone().requires_grad_()
    out = torch.ops.xla_dynamo.dropout_attention(q, k, v, None, 0.4, False, None)[0]
    keep = (out != 0)[..., :6].double() / 0.6
    want = ((q @ k.mT / math.sqrt(8)).softmax(-1) * keep) @ v
    torch.testing.assert_close(out, want)
    grad = torch.randn(out.shape, dtype=torch.float64)
    got, wanted = (torch.autograd.grad(x, (q, k, v), grad) for x in (out, want))
    torch.testing.assert_close(got, wanted)
