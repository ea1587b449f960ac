"""PyTorch's functional collectives become ours, with the replicas of all groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from xla_dynamo.backend.decompositions.functional_collectives import FUNCTIONAL_COLLECTIVES
from xla_dynamo.errors import NotAvailable

X = torch.ones(4, 3)
ALL = [0, 1, 2, 3], 4


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield
    dist.destroy_process_group()


def calls(function: Callable[..., Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """Names and arguments of our ops that a function becomes."""
    graph = make_fx(function, FUNCTIONAL_COLLECTIVES, tracing_mode="fake")(X).graph
    assert not [n for n in graph.nodes if "_c10d_functional.all" in str(n.target)]
    ours = [n for n in graph.nodes if str(n.target).startswith("xla_dynamo")]
    return [(str(node.target).split(".")[1], tuple(node.args[1:])) for node in ours]


def test_world() -> None:
    world = dist.group.WORLD
    assert calls(lambda x: functional.all_reduce(x, "sum", world)) == [
        ("all_reduce", ("sum", *ALL))
    ]
    assert calls(lambda x: functional.all_gather_tensor(x, 0, world)) == [("all_gather", (0, *ALL))]
    assert calls(lambda x: functional.reduce_scatter_tensor(x, "max", 0, world)) == [
        ("reduce_scatter", ("max", 0, *ALL))
    ]
    assert calls(lambda x: functional.all_to_all_single(x, None, None, world)) == [
        ("all_to_all", (0, 0, *ALL))
    ]
    assert [name for name, _ in calls(lambda x: functional.broadcast(x, 2, world))] == [
        "own_part",
        "all_reduce",
    ]


def test_a_mean_is_a_sum_of_parts() -> None:
    graph = make_fx(
        lambda x: functional.all_reduce(x, "avg", dist.group.WORLD),
        FUNCTIONAL_COLLECTIVES,
        tracing_mode="fake",
    )(X).graph
    (division,) = graph.find_nodes(op="call_function", target=torch.ops.aten.div.Tensor)
    assert division.args[1] == 4


def test_a_group_of_some() -> None:
    group = dist.new_group([1, 3])
    assert calls(lambda x: functional.all_reduce(x, "sum", group)) == [
        ("all_reduce", ("sum", [0, 2, 1, 3], 2))
    ]
    alone = dist.new_group([1])
    assert calls(lambda x: functional.all_reduce(x, "sum", alone)) == []


def test_what_xla_has_not() -> None:
    world = dist.group.WORLD
    with pytest.raises(NotAvailable, match="parts of several sizes"):
        calls(lambda x: functional.all_to_all_single(x, [1, 1, 1, 1], [2, 1, 1, 0], world))
