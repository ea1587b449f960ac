"""The ops of a pending trace as a list of IR nodes, and that list as torch_xla prints it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values.source_location import Location
from xla_dynamo.compat.values.trie import Number, State, metas_in, refs_in
from xla_dynamo.compat.values.values import Meta, Ref, meta

_TYPES = {
    torch.bool: "pred",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "s8",
    torch.int16: "s16",
    torch.int32: "s32",
    torch.int64: "s64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
}
_PYTHON = {float: torch.float32, int: torch.int64}


@dataclass(frozen=True)
class IrNode:
    """One line of the IR.

    operands: (number of the node, which of its results).
    static: the arguments that are no tensors, as "name=value".
    roots: the positions of its results among the tensors asked for.
    """

    op: str
    shapes: tuple[Meta, ...]
    operands: tuple[tuple[int, int], ...]
    static: tuple[str, ...]
    location: Location | None
    roots: tuple[int, ...]


def shape(of: Meta) -> str:
    """ "f32[2,3]{1,0}", in XLA's notation."""
    layout = ",".join(map(str, reversed(range(len(of.shape)))))
    sizes = ",".join(map(str, of.shape))
    return f"{_TYPES[of.dtype]}[{sizes}]" + (f"{{{layout}}}" if layout else "")


def nodes(trace: Trace, wanted: Sequence[int]) -> list[IrNode]:
    """The IR of what the values `wanted` of a trace need, in the order of recording."""
    path = trace.state.path()
    origin = [(state, i) for state in path for i in range(len(metas_in(state.outputs)))]
    needed = _needed(origin, wanted)
    made: list[IrNode] = []
    known: dict[Any, tuple[int, int]] = {}

    def leaf(key: Any, op: str, of: Meta, location: Location | None) -> tuple[int, int]:
        if key not in known:
            made.append(IrNode(op, (of,), (), (), location, ()))
            known[key] = len(made) - 1, 0
        return known[key]

    def operand(item: Ref | Number, location: Location | None) -> tuple[int, int]:
        if type(item) is Number:
            of = meta(torch.Size([]), _PYTHON.get(item.dtype, item.dtype))  # type: ignore[arg-type]
            return leaf(("number", item.index), "xla::device_data", of, location)
        assert isinstance(item, Ref)
        if item.meta is not None:
            return leaf(item, "xla::device_data", item.meta, location)
        return known[item.index]

    first = 0
    for state in path:
        metas = tuple(metas_in(state.outputs))
        numbers = range(first, first + len(metas))
        first += len(metas)
        if state not in needed:
            continue
        operands = tuple(operand(item, state.location) for item in _operands(state))
        roots = tuple(wanted.index(i) for i in numbers if i in wanted)
        op = state.op.func._schema.name
        made.append(IrNode(op, metas, operands, _static(state), state.location, roots))
        known.update({i: (len(made) - 1, k) for k, i in enumerate(numbers)})
    return made


def _needed(origin: Sequence[tuple[State, int]], wanted: Sequence[int]) -> set[State]:
    needed: set[State] = set()
    waiting = [origin[i][0] for i in wanted]
    while waiting:
        state = waiting.pop()
        if state not in needed:
            needed.add(state)
            waiting += [origin[ref.index][0] for ref in refs_in(state.key) if ref.meta is None]
    return needed


def _operands(state: State) -> list[Any]:
    return [item for item in pytree.tree_leaves((state.args, state.kwargs)) if _is_operand(item)]


def _is_operand(item: Any) -> bool:
    return type(item) is Ref or type(item) is Number


def _static(state: State) -> tuple[str, ...]:
    """The arguments without tensors and numbers: "dim=(0, 1)"."""
    names = [argument.name for argument in state.op.func._schema.arguments]
    given = [*zip(names, state.args, strict=False), *state.kwargs.items()]

    def plain(item: Any) -> bool:
        return not any(map(_is_operand, pytree.tree_leaves(item)))

    def show(item: Any) -> str:
        if isinstance(item, list):
            return "(" + ", ".join(map(show, item)) + ")"
        return str(int(item)) if type(item) is bool else str(item)

    return tuple(f"{name}={show(item)}" for name, item in given if item is not None and plain(item))


def ir_debug() -> bool:
    """Whether texts show the user's lines: XLA_IR_DEBUG or XLA_HLO_DEBUG."""
    names = ("XLA_IR_DEBUG", "XLA_HLO_DEBUG")
    return any(os.environ.get(name, "0") not in ("", "0") for name in names)


def print_nodes(listed: Sequence[IrNode]) -> str:
    """One node a line."""
    lines = ["IR {"]
    for number, node in enumerate(listed):
        parts = [f"{node.op}({', '.join(_reference(listed, *of) for of in node.operands)})"]
        if len(node.shapes) > 1:
            parts.append(f"num_outputs={len(node.shapes)}")
        parts += node.static
        if ir_debug() and node.location is not None:
            file, function, line = node.location
            parts.append(f"location={function}@{os.path.basename(file)}:{line}")
        parts.append(f"xla_shape={shapes(node)}")
        parts += [f"ROOT={root}" for root in node.roots]
        lines.append(f"  %{number} = {shapes(node)} " + ", ".join(parts))
    return "\n".join([*lines, "}", ""])


def _reference(listed: Sequence[IrNode], number: int, result: int) -> str:
    return f"%{number}.{result}" if len(listed[number].shapes) > 1 else f"%{number}"


def shapes(node: IrNode) -> str:
    """The shape of a node's result, or of its results in parentheses."""
    each = [shape(of) for of in node.shapes]
    return each[0] if len(each) == 1 else f"({', '.join(each)})"


def print_dot(listed: Sequence[IrNode]) -> str:
    """Nodes, then edges from operand to user."""
    lines = ["digraph G {"]
    for number, node in enumerate(listed):
        label = [node.op, shapes(node), *node.static, f"xla_shape={shapes(node)}"]
        label += [f"ROOT={root}" for root in node.roots]
        lines.append(f'  node{number} [label="' + "\\n".join(label) + '"]')
    for number, node in enumerate(listed):
        for position, (source, _) in enumerate(node.operands):
            label = f' [label="i={position}"]' if len(node.operands) > 1 else ""
            lines.append(f"  node{source} -> node{number}{label}")
    return "\n".join([*lines, "}", ""])
