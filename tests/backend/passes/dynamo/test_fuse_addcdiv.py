"""addcdiv and addcmul with a value, in 16 bits under torch.compile: rounded as eager rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import EagerAndRecordGraphs

from tests.like_eager.compiled import assert_like_eager
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.dynamo.fuse_addcdiv import fuse_addcdiv


def _in_place(name: str) -> Callable[..., Tensor]:
    def update(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return getattr(x.clone(), name)(a, b, value=-0.3)

    return update


def _function(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.addcdiv(x, a, b, value=-0.3)


def _in_a_loop(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.addcdiv(x, a, b, value=0.3)
    return x


def _in_an_argument(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.sin(torch.addcdiv(a, torch.addcdiv(x, a, b, value=2), b, value=-0.5))


CALLS: dict[str, Callable[..., Tensor]] = {
    "addcdiv": _function,
    "addcdiv_": _in_place("addcdiv_"),
    "addcmul_": _in_place("addcmul_"),
    "loop": _in_a_loop,
    "nested": _in_an_argument,
}


def operands(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """x nearly cancels 0.3 a / b, so that a quotient that was rounded before shows."""
    a, b = torch.randn(2, 512, dtype=torch.float64)
    b = b.abs() + 0.5
    x = 0.303 * a / b
    return tuple(value.to(dtype) for value in (x, a, b))


def targets(function: Callable[..., Any]) -> list[Any]:
    """The calls of Dynamo's graph after the pass."""
    record = EagerAndRecordGraphs()
    torch.compile(function, backend=record, fullgraph=True)(*operands(torch.bfloat16))
    (graph,) = record.graphs
    fuse_addcdiv(graph.graph, Context("test", WayIn.COMPILE, Target("cpu")))
    return [node.target for node in graph.graph.nodes if node.op.startswith("call")]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.complex64])
def test_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    given = operands(dtype)
    got = torch.compile(CALLS[name], backend="xla", fullgraph=True)(*given)
    if dtype in (torch.float32, torch.complex64) or name == "nested":  # fused or not, sines
        torch.testing.assert_close(got, CALLS[name](*given))
    else:
        assert torch.equal(got, CALLS[name](*given))


@pytest.mark.parametrize("name", CALLS)
def test_gradients(name: str) -> None:
    assert_like_eager(CALLS[name], *(v.double().requires_grad_() for v in operands(torch.float32)))


def test_is_the_op_that_was_called() -> None:
    assert targets(_function) == [torch.addcdiv]
    assert targets(_in_a_loop) == [torch.addcdiv] * 3
    assert targets(_in_place("addcdiv_")) == ["clone", torch.addcdiv, "copy_"]


def test_calls_with_and_without_a_value() -> None:
    def both(x: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
        given: list[dict[str, Any]] = [{}, {"value": 0.3}, {"value": 2}]
        return [torch.addcdiv(x, a, b, **named) for named in given]

    assert targets(both) == [torch.addcdiv] * 3


THREE = [torch.div, torch.mul, torch.add]


def test_three_ops_of_the_users_stay_three() -> None:
    def nested(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.add(x, torch.mul(torch.div(a, b), 0.3))

    def lines(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        quotient = torch.div(a, b)
        scaled = torch.mul(quotient, 0.3)
        return torch.add(x, scaled)

    def through_one_call(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        for op, other in ((torch.div, b), (torch.mul, 0.3), (torch.sub, x)):
            a = op(a, other)
        return a

    assert targets(nested) == THREE
    assert targets(lines) == THREE
    assert targets(through_one_call) == [torch.div, torch.mul, torch.sub]
