"""Shards as arguments, results and values of a program over four devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.backend.executable.test_partitioned import DEVICES, GRID, request
from tests.backend.graphs import traced
from xla_dynamo.backend.executable import manual_values
from xla_dynamo.backend.executable.device_launch import compile_arrays
from xla_dynamo.backend.ops.sharding import ENTER, LEAVE, MARK
from xla_dynamo.backend.runtime import partitions, shardings, transfers
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.shardings import Grid, Sharding
from xla_dynamo.errors import NotAvailable, UnsupportedOp

ops = torch.ops.xla_dynamo
ROWS = Sharding(GRID, ((0, 1), ())).attribute()


def compiled(function: Any, tensors: list[Tensor], inputs: list[Sharding]) -> Any:
    on = Partitions(DEVICES, tuple(inputs))
    return compile_arrays(traced(function, *tensors).graph, request(), on, (), lambda op: None)


def whole(*tensors: Tensor) -> list[Sharding]:
    return [shardings.replicated(GRID, tensor.dim()) for tensor in tensors]


def test_shards_go_from_one_program_to_another() -> None:
    """Also those without a dimension; what is whole meanwhile is each device's."""
    x = torch.randn(8, 4).double()

    def first(x: Tensor) -> Any:
        shard = ENTER(x, ROWS, [2, 4])
        total = ops.all_reduce([shard], "sum", [0, 1, 2, 3], 4)[0]
        return shard * 2 + x[:2], total.sum(), LEAVE(total, ROWS, [8, 4]).sum()

    on = Partitions(DEVICES)
    [shards, number, fourfold] = compiled(first, [x], whole(x))(transfers.upload(x, on))
    kinds = [partitions.sharding_of(each) for each in (shards, number)]
    assert [kind and kind.role for kind in kinds] == ["manual", "manual"]
    assert (shards.shape, number.shape) == ((8, 4), (4,))
    torch.testing.assert_close(transfers.download(fourfold), 4 * x.sum())
    with pytest.raises(NotAvailable, match="its own shard"):
        transfers.download(shards)

    def second(shards: Tensor, number: Tensor) -> Any:
        return (LEAVE(shards + number, ROWS, [8, 4]),)

    given = [torch.randn(2, 4).double(), torch.randn(()).double()]
    [result] = compiled(second, given, kinds)(shards, number)  # type: ignore[arg-type]
    expected = x * 2 + x[:2].repeat(4, 1) + x.sum()
    torch.testing.assert_close(transfers.download(result, (8, 4)), expected)


def test_what_is_whole_comes_between_shards() -> None:
    """Shards that meet a value made of others leave their region, and enter the next."""
    x = torch.randn(8, 4).double()

    def function(x: Tensor) -> Any:
        shard = ENTER(x, ROWS, [2, 4])
        largest = LEAVE(shard * 2, ROWS, [8, 4]).amax()
        return (LEAVE(shard + ENTER(x * largest, ROWS, [2, 4]), ROWS, [8, 4]),)

    [result] = compiled(function, [x], whole(x))(transfers.upload(x, Partitions(DEVICES)))
    torch.testing.assert_close(transfers.download(result, (8, 4)), x + x * (2 * x).max())


def test_what_is_refused() -> None:
    x = torch.randn(8, 4)
    other = Sharding(Grid((4,), ("all",), (0, 1, 2, 3)), ((0,), ())).attribute()
    wrong = {
        "different meshes": lambda x: ENTER(x, ROWS, [2, 4]) + ENTER(x, other, [2, 4]),
        "cannot be split again": lambda x: MARK(ENTER(x, ROWS, [2, 4]), ROWS),
        "takes no shard": lambda x: LEAVE(x, ROWS, [32, 4]),
        "collectives take shards": lambda x: ops.all_gather(x, 0, [0, 1, 2, 3], 4),
    }
    for why, function in wrong.items():
        graph = traced(lambda x, function=function: (function(x),), x).graph
        with pytest.raises(UnsupportedOp, match=why):
            manual_values.grids(graph, Partitions(DEVICES, tuple(whole(x))))


def test_shards_leave_by_another_mesh() -> None:
    """One that the axes of the first can express; XLA would end the process."""
    x = torch.randn(8, 4)
    line = Grid((4,), ("all",), (0, 1, 2, 3))
    rows = Sharding(line, ((0,), ())).attribute()
    columns = Sharding(GRID, ((), (0,))).attribute()

    def function(x: Tensor) -> Any:
        return LEAVE(ENTER(x, ROWS, [2, 4]) * 2, rows, [8, 4]), LEAVE(
            ENTER(x, columns, [8, 2]) * 2, shardings.replicated(line, 2).attribute(), [8, 2]
        )

    doubled, first = compiled(function, [x], whole(x))(transfers.upload(x, Partitions(DEVICES)))
    torch.testing.assert_close(transfers.download(doubled, (8, 4)), x * 2)
    assert tuple(first.shape) == (8, 2)
    turned = Grid((4,), ("all",), (1, 0, 2, 3))
    other = Sharding(turned, ((0,), ())).attribute()
    with pytest.raises(UnsupportedOp, match="is not that of the shards"):
        compiled(lambda x: (LEAVE(ENTER(x, ROWS, [2, 4]), other, [8, 4]),), [x], whole(x))
