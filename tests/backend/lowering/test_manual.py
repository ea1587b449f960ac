"""The text of programs with shards: what is computed with them is in regions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.backend.graphs import traced
from xla_dynamo.backend.lowering import linker, rules  # noqa: F401  (fills RULES)
from xla_dynamo.backend.lowering.lower import lower_graph
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.ops.sharding import ENTER, LEAVE

ROWS = '#sdy.sharding<mesh<["all"=4]>, [{"all"}, {}]>'
ops = torch.ops.xla_dynamo


def lowered(function: Any) -> str:
    graph = traced(function, torch.ones(8, 4)).graph
    return lower_graph(graph, Target("cpu"), shardings=linker.Shardings()).canonical()


def test_regions() -> None:
    """One for what goes together; constants are inside; each collective has a channel."""

    def function(x: Tensor) -> Any:
        shard = ENTER(x, ROWS, [2, 4])
        other = ENTER(x * 3, ROWS, [2, 4])
        summed = [ops.all_reduce([each], "sum", [0, 1, 2, 3], 4)[0] for each in (shard, other)]
        return (LEAVE(summed[0] + summed[1] + 1, ROWS, [8, 4]),)

    text = lowered(function)
    assert text.count("sdy.manual_computation") == 1
    assert 'manual_axes={"all"}' in text
    assert text.count("channel_handle<handle = 1, type = 1>") == 1
    assert text.count("channel_handle<handle = 2, type = 1>") == 1
    assert text.count("use_global_device_ids") == 2
    assert "custom_call" not in text


def test_a_part_of_one_device() -> None:
    """Its number is that of the partition: there is one replica."""

    def function(x: Tensor) -> Any:
        part = ops.own_part(ENTER(x, ROWS, [2, 4]), 1, [0, 1, 2, 3], 4)
        return (LEAVE(part, ROWS, [8, 1]),)

    text = lowered(function)
    assert "stablehlo.partition_id" in text
    assert "replica_id" not in text


def test_a_program_without_shards() -> None:
    assert "manual" not in lowered(lambda x: (x + 1,))
