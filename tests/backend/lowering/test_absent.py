"""What TPUs lack is refused by the op's name, before their compiler sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import absent, rules  # noqa: F401  (fills RULES)
from xla_dynamo.backend.lowering.bodies import body_of
from xla_dynamo.backend.lowering.registry import Refusal, Target

aten = torch.ops.aten


def reasons(function: Callable[..., Any], x: Tensor, platform: str) -> list[str]:
    nodes = fx.calls(make_fx(function, tracing_mode="fake")(x).graph)
    ops = [node for node in nodes if isinstance(node.target, torch._ops.OpOverload)]
    found = [body_of(node, Target(platform)) for node in ops]
    return [body.reason for body in found if isinstance(body, Refusal)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: aten.linalg_lu_factor_ex(x),
        lambda x: aten._linalg_solve_ex(x, x),
        lambda x: aten.linalg_inv_ex(x),
    ],
)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
def test_lu_decompositions(function, shape):
    wide = torch.ones(shape, dtype=torch.float64)
    [reason] = reasons(function, wide, "tpu")
    assert reason == "XLA's compiler for TPUs has LU decompositions of float32 and complex64 alone."
    assert not reasons(function, wide, "cpu")
    assert not reasons(function, wide.float(), "tpu")


def test_transforms_of_float64_are_complex128():
    def transform(x: Tensor) -> Tensor:
        return aten._fft_r2c(x, [0], 0, True)

    lacks = "XLA's compiler for TPUs has no torch.complex128."
    assert reasons(transform, torch.ones(4, dtype=torch.float64), "tpu") == [lacks]
    assert not reasons(transform, torch.ones(4), "tpu")


def test_dtypes():
    assert absent.dtype(torch.complex128, "cpu") is None
    assert absent.dtype(torch.complex64, "tpu") is None
    assert absent.dtype(torch.float64, "tpu") is None
