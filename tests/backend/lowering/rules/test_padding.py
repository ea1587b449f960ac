"""Padding and its gradients against eager."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.padding  # noqa: F401
from tests.like_eager.rules import check

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("shape", "pad"),
    [
        ((3, 4), [1, 2]),
        ((3, 4), [1, 2, 0, 3]),
        ((3, 4), [-1, 2, 1, -2]),
        ((2, 3, 4), []),
        ((0, 4), [1, 1, 2, 0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("value", [0, 1.0])
def test_constant(shape, pad, dtype, value):
    check(aten.constant_pad_nd.default, torch.randn(shape).to(dtype), pad, value)


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), 2.5])
def test_constant_values(value):
    check(aten.constant_pad_nd.default, torch.randn(3), [1, 1], value)
    check(aten.constant_pad_nd.default, torch.randn(3, dtype=torch.complex64), [1, 1], value)


PADS = {
    1: [[1, 2], [0, 3], [3, 0], [-1, 2], [-5, 4], [3, -6]],
    2: [[1, 2, 3, 1], [0, 0, 2, 0], [2, -1, 1, 1]],
    3: [[1, 2, 1, 1, 2, 0], [0, 1, 0, 0, 1, 2]],
}


@pytest.mark.parametrize("mode", ["reflection", "replication"])
@pytest.mark.parametrize(("rank", "pad"), [(rank, pad) for rank in PADS for pad in PADS[rank]])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_borders(mode, rank, pad, batched, dtype):
    forward = getattr(aten, f"{mode}_pad{rank}d").default
    backward = getattr(aten, f"{mode}_pad{rank}d_backward").default
    x = torch.randn(*([2] if batched else []), 3, *(5, 4, 6)[:rank]).to(dtype)
    check(forward, x, pad)
    check(backward, torch.randn_like(forward(x, pad)), x, pad)


@pytest.mark.parametrize("mode", ["reflection", "replication"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_borders(mode, dtype):
    forward = getattr(aten, f"{mode}_pad2d").default
    x = torch.randn(1, 2, 4, 5).to(dtype)
    check(forward, x, [1, 2, 1, 0])
