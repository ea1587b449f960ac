"""Which results of a program may take over the memory of its arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import xla_dynamo
from tests.backend.separate_memory import separate_memory as separate_memory
from xla_dynamo.backend.executable import output_plan, updates

aten = torch.ops.aten


def new(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (x + y, y * 2)


def returned(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (x + y, x)


def wide(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (x.double() + y, y * 2)


def transposed(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return ((x + y).t(), y * 2)


def once(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = x + y
    return (z, z)


@pytest.mark.parametrize(
    ("function", "of", "found"),
    [
        (new, {0: 0}, {0: 0}),
        (new, {0: 0, 1: 1}, {0: 0, 1: 1}),
        (new, {0: 1, 1: 0}, {1: 0, 0: 1}),
        (returned, {0: 0}, {}),
        (wide, {0: 0}, {}),
        (transposed, {0: 0}, {}),
        (once, {0: 0, 1: 1}, {}),
    ],
)
def test_aliases(function: Callable[..., Tensor], of: dict[int, int], found: dict[int, int]):
    graph = make_fx(function, tracing_mode="fake")(torch.ones(3, 3), torch.ones(3, 3)).graph
    planned = output_plan.plan(graph, 2, 2)
    assert updates.aliases(graph, planned, of, [0, 1]) == found


@pytest.mark.usefixtures("separate_memory")
def test_a_copy_of_a_cpu_tensor_becomes_a_result_and_the_tensor_stays() -> None:
    x, y = torch.ones(8, 4), torch.ones(4)
    compiled = torch.compile(lambda x, y: x * 2 + y, backend="xla")
    with xla_dynamo.capture() as stages:
        results = [compiled(x, y) for _ in range(2)]
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in stages[0].hlo
    for result in results:
        assert torch.equal(result, torch.full((8, 4), 3.0))
    assert torch.equal(x, torch.ones(8, 4))


@pytest.mark.usefixtures("separate_memory")
def test_what_is_saved_for_backward_is_not_given_up() -> None:
    """The input of sin is saved, and the gradient is not: it becomes the input's."""
    x = torch.rand(8, 4).requires_grad_()
    with xla_dynamo.capture() as stages:
        y = torch.compile(torch.sin, backend="xla")(x)
        for _ in range(2):
            (found,) = torch.autograd.grad(y, x, torch.ones(8, 4), retain_graph=True)
            torch.testing.assert_close(found, x.detach().cos())
    forward, backward = (stage.hlo for stage in stages)
    assert "input_output_alias" not in forward
    assert "input_output_alias={ {}: (1, {}, may-alias) }" in backward
