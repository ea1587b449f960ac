"""Ops on the shards of single devices -> regions that XLA's partitioner leaves as they are.

Where a value enters is a call of a function of one custom call, `ENTER`, and so is where one leaves
(rules/sharding.py). What is computed in between is moved into `sdy.manual_computation`s:

    %1 = call @enter(%0)                %3 = sdy.manual_computation(%0) in_shardings=... {
    %2 = stablehlo.add %1, %1     ->        %2 = stablehlo.add %arg, %arg
    %3 = call @leave(%2)                    sdy.return %2 }

Collectives in them are among the devices of the one program: they get channels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.mlir import ir

from xla_dynamo.errors import CompileError

from . import channels

ENTER, LEAVE = "xla_dynamo.enter_manual", "xla_dynamo.leave_manual"

_MESH = re.compile(r"#sdy\.sharding<(mesh<[^>]*>), ")


@dataclass(frozen=True)
class _Mark:
    """What a function does that is called where a value enters or leaves, with its sharding."""

    target: str
    sharding: str

    @property
    def mesh(self) -> str:
        found = _MESH.match(self.sharding)
        assert found is not None
        return found[1]


@dataclass
class _Region:
    """Ops on one mesh that go together: nothing on whole values has to come between."""

    mesh: str
    ops: list[Any] = field(default_factory=list)
    entering: list[tuple[Any, str]] = field(default_factory=list)
    leaving: list[tuple[Any, str]] = field(default_factory=list)


def to_regions(module: ir.Module, main: Any) -> None:
    """Move what is computed with shards into regions; a program without any stays as it is.

    Raises:
        CompileError: shards of one region are used in another.
    """
    marks = {
        channels.symbol(function): _mark_of(function) for function in channels.functions(module)
    }
    marks = {name: mark for name, mark in marks.items() if mark is not None}
    if not marks:
        return
    channels.number_collectives(module, main)
    for region in _sorted_into_regions(main, marks):
        _build(region)
    for function in channels.functions(module):
        if channels.symbol(function) in marks:
            function.operation.erase()


def _sorted_into_regions(main: Any, marks: Mapping[str, _Mark]) -> list[_Region]:
    """Sort the ops of `main`, those on whole values (even levels) before and after regions (odd).

    Ops that go together are then together.
    """
    block = main.regions[0].blocks[0]
    *ops, end = [op.operation for op in block.operations]
    levels: dict[Any, int] = {}
    meshes: dict[Any, str] = {}
    found: dict[tuple[int, str], _Region] = {}
    order = []
    for op in ops:
        mark, used = marks.get(channels.callee(op)), _used(op)
        inside = {meshes[value] for value in used if value in meshes}
        if mark is not None and mark.target == ENTER:
            inside = {mark.mesh}
        level = max((levels[value] for value in used if value in levels), default=0)
        level += level % 2 != bool(inside)
        order.append((level, op))
        leaves = mark is not None and mark.target == LEAVE
        for result in op.results:
            levels[result] = level + leaves
            if inside and not leaves:
                meshes[result] = next(iter(inside))
        for mesh in inside:
            region = found.setdefault((level, mesh), _Region(mesh))
            if mark is None:
                region.ops.append(op)
            else:
                (region.leaving if leaves else region.entering).append((op, mark.sharding))
    for _, op in sorted(order, key=lambda each: each[0]):
        op.move_before(end)
    return [found[key] for key in sorted(found)]


def _build(region: _Region) -> None:
    """Make the `sdy.manual_computation` of a region, and move its ops into it."""
    every = [*region.ops, *(op for op, _ in region.entering), *(op for op, _ in region.leaving)]
    own = {result for op in every for result in op.results}
    taken = [value for op, _ in region.leaving for value in op.operands]
    outer = dict.fromkeys(v for op in region.ops for v in _used(op))
    outer = [value for value in dict.fromkeys([*outer, *taken]) if value not in own]
    constants = [value for value in outer if _is_constant(value)]
    whole = [value for value in outer if value not in constants]
    values = [*(op.operands[0] for op, _ in region.entering), *whole]
    shards = [*(op.results[0].type for op, _ in region.entering), *(v.type for v in whole)]
    inner = [s for _, s in region.entering] + [_replicated(region.mesh, v) for v in whole]
    location = every[0].location
    made = ir.Operation.create(
        "sdy.manual_computation",
        results=[op.results[0].type for op, _ in region.leaving],
        operands=values,
        attributes={
            "in_shardings": _shardings(inner),
            "out_shardings": _shardings([sharding for _, sharding in region.leaving]),
            "manual_axes": _axes(region.mesh),
        },
        regions=1,
        loc=location,
        ip=ir.InsertionPoint(_first(every)),
    )
    block = made.regions[0].blocks.append(*shards)
    inside = dict(zip(whole, block.arguments[len(region.entering) :], strict=True))
    for value in constants:
        copy = value.owner.clone()
        block.append(copy)
        inside[value] = copy.results[0]
    for (op, _), argument in zip(region.entering, block.arguments, strict=False):
        op.results[0].replace_all_uses_with(argument)
    for op in region.ops:
        block.append(op)
        _replace(op, inside)
    returned = [inside.get(op.operands[0], op.operands[0]) for op, _ in region.leaving]
    with ir.InsertionPoint(block), location:
        ir.Operation.create("sdy.return", operands=returned)
    for (op, _), result in zip(region.leaving, made.results, strict=True):
        op.results[0].replace_all_uses_with(result)
    for op, _ in [*region.leaving, *region.entering]:
        op.erase()
    _check(region)


def _check(region: _Region) -> None:
    for op in region.ops:
        for result in op.results:
            if any(use.owner.operation.parent.name == "func.func" for use in result.uses):
                raise CompileError(
                    f"a shard is used outside of its region, at {op.location}: this is a bug of "
                    "xla_dynamo, please report it"
                )


def _first(ops: Sequence[Any]) -> Any:
    """Of ops of one block, the one that comes first."""
    wanted = set(ops)
    return next(op for op in ops[0].block.operations if op.operation in wanted).operation


def _used(op: Any) -> list[Any]:
    """The values that an op uses, those of its regions included, but not those made there."""
    found, own = list(op.operands), set()
    for region in op.regions:
        for block in region:
            own.update(block.arguments)
            for inner in block.operations:
                found.extend(_used(inner.operation))
                own.update(inner.operation.results)
    return [value for value in found if value not in own] if own else found


def _replace(op: Any, inside: Mapping[Any, Any]) -> None:
    for position, value in enumerate(op.operands):
        if value in inside:
            op.operands[position] = inside[value]
    for region in op.regions:
        for block in region:
            for inner in block.operations:
                _replace(inner.operation, inside)


def _is_constant(value: Any) -> bool:
    owner = value.owner
    return isinstance(owner, ir.Operation | ir.OpView) and owner.name == "stablehlo.constant"


def _shardings(texts: Sequence[str]) -> ir.Attribute:
    bare = ", ".join(text.removeprefix("#sdy.sharding") for text in texts)
    return ir.Attribute.parse(f"#sdy.sharding_per_value<[{bare}]>")


def _replicated(mesh: str, value: Any) -> str:
    dims = ", ".join(["{}"] * ir.ShapedType(value.type).rank)
    return f"#sdy.sharding<{mesh}, [{dims}]>"


def _axes(mesh: str) -> ir.Attribute:
    names = ", ".join(re.findall(r'"[^"]*"(?==)', mesh))
    return ir.Attribute.parse(f"#sdy<manual_axes{{{names}}}>")


def _mark_of(function: Any) -> _Mark | None:
    for op in function.regions[0].blocks[0].operations:
        if op.operation.name == "stablehlo.custom_call":
            target = ir.StringAttr(op.operation.attributes["call_target_name"]).value
            if target in (ENTER, LEAVE):
                return _Mark(target, ir.StringAttr(op.operation.attributes["backend_config"]).value)
    return None
