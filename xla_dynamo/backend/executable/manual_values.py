"""Values of which each device has its own, between `enter_manual` and `leave_manual`, in a graph.

They may be arguments and results of a program: the array is then that of all devices, one after the
other along its first dimension. Within, what XLA computes for all devices does not come between ops
on shards: where shards are used later, they leave, and enter again (lowering/manual.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.backend.ops.collectives import COLLECTIVES
from xla_dynamo.backend.ops.sharding import ENTER, LEAVE, MARK
from xla_dynamo.backend.runtime import shardings
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.shardings import Grid, Sharding
from xla_dynamo.errors import UnsupportedOp

Grids = Mapping[Node, Grid]
aten = torch.ops.aten


def grids(graph: Graph, on: Partitions) -> Grids:
    """The values of which each device has its own, with the grid of the devices.

    Where they leave is said by that grid, whatever the mesh was called (`graph` is edited).

    Raises:
        UnsupportedOp: an op is not for such values, or only for such, or mixes grids.
    """
    found: dict[Node, Grid] = {}
    for node, sharding in zip(fx.placeholders(graph), on.inputs, strict=True):
        if sharding.role == "manual":
            found[node] = sharding.grid
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        own = {found[operand] for operand in node.all_input_nodes if operand in found}
        _check(node, own)
        if node.target is ENTER:
            found[node] = shardings.parse(node.args[1]).grid
        elif node.target is LEAVE:
            _on_grid(node, own.pop())
        elif own:
            found[node] = own.pop()
    return found


def _on_grid(leaving: Node, grid: Grid) -> None:
    """Say by the axes of `grid` how a tensor is split whose shards leave; XLA takes no others."""
    args: Any = leaving.args
    shard, attribute, shape = args
    sharding = shardings.parse(attribute)
    if sharding.grid != grid:
        same = shardings.of_tiles(sharding.tiles, [grid])
        if same.grid != grid:
            raise UnsupportedOp(
                f"{leaving.target} at {location_of(leaving)}: the mesh {sharding.grid.attribute()} "
                f"is not that of the shards, {grid.attribute()}."
            )
        leaving.args = shard, same.attribute(), shape


def _check(node: Node, own: Collection[Grid]) -> None:
    """Raise if an op cannot take what it takes; own: the grids of which it takes shards."""
    why = None
    if len(own) > 1:
        why = "it takes shards of tensors of different meshes"
    elif own and node.target in (ENTER, MARK):
        why = "it takes a shard, which cannot be split again"
    elif not own and node.target is LEAVE:
        why = "it takes no shard: xs.enable_manual_sharding gives one"
    elif not own and node.target in COLLECTIVES:
        why = "in SPMD mode, collectives take shards: xs.enable_manual_sharding gives one"
    if why is not None:
        raise UnsupportedOp(f"{node.target} at {location_of(node)}: {why}.")


def refuse(found: Grids, on_cpu: Collection[Node]) -> None:
    """Raise if an op that runs on the CPU, or a part of the graph beside it, takes or gives shards.

    Raises:
        UnsupportedOp: one does.
    """
    if found and on_cpu:
        node = next(iter(on_cpu))
        raise UnsupportedOp(
            f"{node.target} at {location_of(node)} runs on the CPU, in a program with "
            "shards, between xs.enable_manual_sharding and xs.disable_manual_sharding. Call "
            "xm.mark_step() between the two."
        )


def enter(graph: Graph, argument: Node, sharding: Sharding) -> None:
    """Have an argument be the array of all devices, of which the graph takes the shard."""
    value = argument.meta["val"]
    users = list(argument.users)
    argument.meta["val"] = value.new_empty(sharding.padded(value.shape))
    with graph.inserting_before(fx.placeholders(graph)[-1].next):
        shard = _enter(graph, argument, sharding, tuple(value.shape))
    for user in users:
        user.replace_input_with(argument, shard)


def _enter(graph: Graph, whole: Node, sharding: Sharding, shape: tuple[int, ...]) -> Node:
    args = whole, sharding.attribute(), list(shape or (1,))
    shard = edit.call(graph, ENTER, *args, like=whole)
    return shard if shape else edit.call(graph, aten.reshape.default, shard, [], like=whole)


def leave(graph: Graph, shard: Node, sharding: Sharding) -> Node:
    """The array of all devices, of their shards."""
    shape = tuple(shard.meta["val"].shape)
    if not shape:
        shard = edit.call(graph, aten.reshape.default, shard, [1], like=shard)
    args = shard, sharding.attribute(), list(sharding.padded(shape))
    return edit.call(graph, LEAVE, *args, like=shard)


def separate(graph: Graph, found: Grids) -> None:
    """Have shards leave and enter again where what uses them needs whole values made of others."""
    levels = dict.fromkeys((node for node in fx.placeholders(graph) if node in found), 1)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        inside = node in found or node.target is LEAVE
        level = max((levels.get(operand, 0) for operand in node.all_input_nodes), default=0)
        level += level % 2 != inside
        for operand in node.all_input_nodes:
            if operand in found and 0 < levels.get(operand, 0) < level and inside:
                _again(graph, operand, node, found[operand], level - levels[operand])
        levels[node] = level + (node.target is LEAVE)


def _again(graph: Graph, shard: Node, user: Node, grid: Grid, levels: int) -> None:
    sharding = shardings.manual(grid, max(shard.meta["val"].dim(), 1))
    shape, new = tuple(shard.meta["val"].shape), shard
    with graph.inserting_before(user):
        for _ in range(levels // 2):
            new = _enter(graph, leave(graph, new, sharding), sharding, shape)
    user.replace_input_with(shard, new)
