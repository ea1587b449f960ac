"""Which results of a program may take over the memory of its arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

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
        (once, {0: 0, 1: 1}, {0: 0}),
    ],
)
def test_aliases(function: Callable[..., Tensor], of: dict[int, int], found: dict[int, int]):
    graph = make_fx(function, tracing_mode="fake")(torch.ones(3, 3), torch.ones(3, 3)).graph
    planned = output_plan.plan(graph, 2, 2)
    assert updates.aliases(graph, planned, of, [0, 1]) == found
