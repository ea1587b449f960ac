"""Collectives on 2 and 4 replicas of one process, against NumPy on the values of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import dtypes, lower, rules
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.runtime import pjrt, replica_arrays, transfers
from xla_dynamo.errors import UnsupportedOp

assert rules
ops = torch.ops.xla_dynamo
MOST = 4
NUMPY = {
    "sum": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def devices(replicas: int) -> tuple[Any, ...]:
    client = jax_adapter.cpu_client(asynchronous=True, devices=MOST)
    return tuple(client.local_devices()[:replicas])


def run(function: Callable[..., Any], *inputs: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The results of `function` on each replica; inputs: one tensor for each replica."""
    on = devices(len(inputs[0]))
    graph = traced(function, *[each[0] for each in inputs]).graph
    arguments = [replica_arrays.stack(list(map(transfers.upload, each, on)), on) for each in inputs]

    def signature(node: Any) -> Any:
        return tuple(node.meta["val"].shape), dtypes.to_numpy(node.meta["val"].dtype)

    given, made = (list(map(signature, f(graph))) for f in (fx.placeholders, fx.results))
    module = lower.lower_graph(graph, Target("cpu")).module
    stacks = pjrt.compile(module, on, given, made, {})(*arguments)
    results = [list(map(transfers.download, replica_arrays.parts(stack))) for stack in stacks]
    return [list(of_replica) for of_replica in zip(*results, strict=True)]


def values(replicas: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randint(1, 4, shape).to(dtype) for _ in range(replicas)]


def assert_equal(results: Sequence[Sequence[torch.Tensor]], expected: Sequence[Any]) -> None:
    for (actual,), wanted in zip(results, expected, strict=True):
        wanted = torch.as_tensor(wanted)
        torch.testing.assert_close(actual, wanted.to(actual.dtype), rtol=0, atol=0)


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("kind", NUMPY)
def test_all_reduce(kind: str, replicas: int) -> None:
    given = values(replicas, 3, 2, dtype=torch.int32)
    ranks = list(range(replicas))
    results = run(lambda x: ops.all_reduce([x], kind, ranks, replicas)[0], given)
    reduced = NUMPY[kind].reduce([x.numpy() for x in given])
    assert_equal(results, [reduced] * replicas)


def test_all_reduce_in_groups() -> None:
    given = values(4, 5)
    results = run(lambda x: ops.all_reduce([x], "sum", [0, 3, 2, 1], 2)[0], given)
    a, b = given[0] + given[3], given[1] + given[2]
    assert_equal(results, [a, b, b, a])


def test_all_reduce_of_a_list_of_several_dtypes() -> None:
    shapes = [((3,), torch.float64), ((), torch.int64), ((2, 2), torch.float64), ((0,), torch.half)]
    inputs = [values(2, *shape, dtype=dtype) for shape, dtype in shapes]
    results = run(lambda *xs: ops.all_reduce(list(xs), "sum", [0, 1], 2), *inputs)
    for result in results:
        for actual, each in zip(result, inputs, strict=True):
            torch.testing.assert_close(actual, each[0] + each[1], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.half, torch.complex64])
def test_dtypes(dtype: torch.dtype) -> None:
    given = [torch.tensor([1, 0, 1]).to(dtype), torch.tensor([1, 0, 0]).to(dtype)]
    results = run(lambda x: ops.all_reduce([x], "sum", [0, 1], 2)[0], given)
    assert_equal(results, [given[0] + given[1]] * 2)


def test_all_gather() -> None:
    given = values(4, 2, 3)
    assert_equal(
        run(lambda x: ops.all_gather(x, 1, [0, 1, 2, 3], 4), given), [torch.cat(given, 1)] * 4
    )
    pairs = [torch.cat([given[1], given[0]], -1), torch.cat([given[2], given[3]], -1)]
    results = run(lambda x: ops.all_gather(x, -1, [1, 0, 2, 3], 2), given)
    assert_equal(results, [pairs[0], pairs[0], pairs[1], pairs[1]])


def test_reduce_scatter() -> None:
    given = values(2, 4, 3)
    total = given[0] + given[1]
    results = run(lambda x: ops.reduce_scatter(x, "sum", 0, [0, 1], 2), given)
    assert_equal(results, total.chunk(2))
    results = run(lambda x: ops.reduce_scatter(x, "max", -2, [1, 0], 2), given)
    assert_equal(results, torch.maximum(*given).chunk(2)[::-1])
    bits = values(2, 4, dtype=torch.int64)
    results = run(lambda x: ops.reduce_scatter(x, "or", 0, [0, 1], 2), bits)
    assert_equal(results, (bits[0] | bits[1]).chunk(2))


def test_all_to_all() -> None:
    given = values(2, 4, 6)
    results = run(lambda x: ops.all_to_all(x, 1, 0, [0, 1], 2), given)
    parts = [x.chunk(2, 1) for x in given]
    assert_equal(results, [torch.cat([parts[0][i], parts[1][i]]) for i in range(2)])


def test_collective_permute() -> None:
    given = values(4, 3)
    results = run(lambda x: ops.collective_permute(x, [0, 1, 1, 2, 3, 0]), given)
    assert_equal(results, [given[3], given[0], given[1], torch.zeros(3)])


def test_own_part() -> None:
    given = values(4, 2, 4)
    results = run(lambda x: ops.own_part(x, 1, [0, 1, 3, 2], 2), given)
    halves = [x.chunk(2, 1) for x in given]
    assert_equal(results, [halves[0][0], halves[1][1], halves[2][1], halves[3][0]])


def test_launches_beyond_the_devices_threads_come_to_an_end() -> None:
    """XLA:CPU has a thread for each device: with no more, five launches would hang, and abort."""
    on = devices(MOST)
    graph = traced(lambda x: ops.all_reduce([x], "sum", [0, 1, 2, 3], 4)[0], torch.ones(2)).graph
    module = lower.lower_graph(graph, Target("cpu")).module
    signature = [((2,), np.dtype(np.float32))]
    program = pjrt.compile(module, on, signature, signature, {})
    x = replica_arrays.stack([transfers.upload(torch.ones(2), device) for device in on], on)
    for _ in range(200):
        (x,) = program(x)
    assert all(torch.isinf(transfers.download(part)).all() for part in replica_arrays.parts(x))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: ops.all_reduce([x], "and", [0, 1], 2)[0], "no bitwise and"),
        (lambda x: ops.reduce_scatter(x, "sum", 0, [0, 1], 2), "no 2 equal parts"),
    ],
)
def test_what_cannot_be(call: Callable[..., Any], text: str) -> None:
    with pytest.raises(UnsupportedOp, match=text):
        lower.lower_graph(traced(call, torch.ones(3)).graph, Target("cpu"))
