"""Replace symbolic sizes by their values for the arguments of a call.

XLA compiles static shapes only, so each combination of sizes gets a graph of its own. An int
argument that no shape depends on (a scale, a step count) stays an argument: a 0-d int64 tensor.
Values keep the strides that were traced, on which views rely: ops that passes have put in place of
others may infer different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import edit, fx, rng_keys
from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.graph.torch_private import FakeTensorMode
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
# Ops that leave values as they are, or only check what tracing has established.
CHECKS = frozenset(
    {
        aten._assert_async.msg,
        aten._assert_scalar.default,
        aten._assert_tensor_metadata.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    }
)


@dataclass(frozen=True)
class Symbols:
    """Where a graph's symbolic sizes can be read off its arguments.

    sources: (argument position, dimension), dimension None for an int argument. The values found
        there decide everything static about the graph: they are the key of its executables.
    runtime_ints: positions of int arguments that stay arguments of the executable.
    """

    sources: tuple[tuple[int, int | None], ...]
    runtime_ints: frozenset[int]

    def key(self, arguments: Sequence[Any]) -> tuple[int, ...]:
        """The values of the symbols for these arguments."""
        return tuple(
            arguments[position] if dimension is None else arguments[position].shape[dimension]
            for position, dimension in self.sources
        )


def find_symbols(graph: Graph) -> Symbols:
    """Scan the placeholders of `graph`; no sources means that its shapes are static."""
    sources: list[tuple[int, int | None]] = []
    runtime: set[int] = set()
    found: set[Any] = set()
    placeholders = fx.placeholders(graph)
    for position, node in enumerate(placeholders):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and _only_data(node):
            runtime.add(position)
        elif is_symbolic(value):
            sources.append((position, None))
            found.add(value.node.expr)  # pyright: ignore[reportOptionalMemberAccess]
    for position, node in enumerate(placeholders):
        value = node.meta.get("val")
        for dimension, size in enumerate(getattr(value, "shape", ())):
            if isinstance(size, torch.SymInt) and size.node.expr not in found:
                found.add(size.node.expr)
                sources.append((position, dimension))
    return Symbols(tuple(sources), frozenset(runtime))


def _only_data(node: Node) -> bool:
    """Whether an int placeholder is used only for tensor-typed parameters of ops."""
    expression = node.meta["val"].node.expr
    if not expression.is_symbol or not node.users:
        return False
    for other in node.graph.nodes:
        shape = getattr(other.meta.get("val"), "shape", ())
        if any(
            isinstance(s, torch.SymInt) and expression in s.node.expr.free_symbols for s in shape
        ):
            return False
    return all(
        user.op == "output"  # saved for backward
        or user.target is aten.scalar_tensor.default
        or takes_as_tensor(user, node)
        for user in node.users
    )


def takes_as_tensor(user: Node, node: Node) -> bool:
    """Whether an op takes an int where a 0-d tensor may be."""
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    parameters = {p.name: p.type for p in user.target._schema.arguments}
    # An int in a list (shifts, strides) is no tensor, although no size may depend on it.
    taken = [
        parameters[name if name in parameters else "self"]
        for name, value in fx.arguments(user).items()
        if node in pytree.tree_leaves(value)
    ]
    return all(isinstance(kind, torch.TensorType) for kind in taken)


def specialize(graph: Graph, context: Context) -> bool:
    """Make every size that `context.arguments` determine an integer, in place.

    Placeholders keep their positions: those of int arguments stay, unused. Values that become
    numbers become constants of the output. Identities and checks are dropped, which is all that
    happens to a graph that is static from the start.
    """
    if context.arguments is None:
        return drop_identities(graph)
    symbols = find_symbols(graph)
    traced = _Traced(graph, symbols.key(context.arguments), symbols)
    arguments = iter(enumerate(context.arguments))
    values: dict[Node, Any] = {}  # what a node has become: a node, a number, a tuple
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    for node in graph.nodes:
        values[node] = node
        if node.op == "placeholder":
            position, argument = next(arguments)
            is_runtime_int = position in symbols.runtime_ints
            values[node] = _argument(node, argument, is_runtime_int, mode, traced)
        elif node.op != "get_attr":
            node.args, node.kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "call_function":
                values[node] = _called(node, mode, traced)
    for node in reversed(graph.nodes):
        if node.op == "call_function" and values[node] is not node:
            graph.erase_node(node)
    return True


class _Traced:
    """The strides that were traced, as numbers for the sizes of a call."""

    def __init__(self, graph: Graph, key: Sequence[int], symbols: Symbols) -> None:
        placeholders = fx.placeholders(graph)
        self._known: dict[Any, int | None] = {}  # by expression
        for (position, dimension), number in zip(symbols.sources, key, strict=True):
            value = placeholders[position].meta["val"]
            size = value if dimension is None else value.shape[dimension]
            self._known[size.node.expr] = number
        # torch 2.9's functions of sympy take no int.
        self._numbers = {e: sympy.Integer(n) for e, n in self._known.items() if e.is_symbol}

    def strides(self, value: Any) -> tuple[int, ...] | None:
        """The strides of a traced tensor; None where they are not known."""
        if not fx.is_strided(value):
            return None
        found = tuple(self._number(stride) for stride in value.stride())
        return None if None in found else found  # type: ignore[return-value]

    def _number(self, stride: Any) -> int | None:
        if isinstance(stride, int):
            return stride
        expression = stride.node.expr
        if expression not in self._known:
            number = expression.xreplace(self._numbers)
            self._known[expression] = int(number) if number.is_number else None
        return self._known[expression]

    def restrided(self, value: Any, old: Any) -> Any:
        """What was inferred for an op, with the strides of what was traced for it."""
        strides = self.strides(old)
        if not fx.is_strided(value) or strides is None or value.dim() != len(strides):
            return value
        same = value.stride() == strides
        return value if same else value.new_empty_strided(value.shape, strides)


def _argument(
    node: Node, argument: Any, is_runtime_int: bool, mode: FakeTensorMode, traced: _Traced
) -> Any:
    """What a placeholder becomes."""
    if isinstance(argument, torch.Tensor):
        node.meta["val"] = _fake(node, argument, mode, traced)
        return node
    if is_runtime_int:
        with mode:
            node.meta["val"] = torch.empty((), dtype=torch.int64, device="cpu")
        node.meta["hint"] = argument
        return node
    node.meta["val"] = argument
    return argument


def _fake(
    node: Node, argument: torch.Tensor, mode: FakeTensorMode, traced: _Traced
) -> torch.Tensor:
    if not fx.is_strided(argument):
        return mode.from_tensor(argument, static_shapes=True)
    strides = argument.stride()
    # What another program computed is row-major, whatever was traced.
    if not node.meta.get("argument") and argument.is_contiguous():
        strides = traced.strides(node.meta.get("val")) or strides
    with mode:
        options = {"dtype": argument.dtype, "device": argument.device}
        return torch.empty_strided(argument.shape, strides, **options)


def _called(node: Node, mode: FakeTensorMode, traced: _Traced) -> Any:
    """What a call, whose arguments are known, becomes."""
    if node.target in edit.IDENTITIES:
        return node.args[0]
    if node.target in CHECKS:
        return None
    if not node.all_input_nodes and is_symbolic(node.meta.get("val")):
        return node.target(*node.args, **node.kwargs)  # type: ignore[operator]
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta.get("hint", n.meta["val"]))
    with mode:
        if node.target is rng_keys.new_key:
            value = torch.empty(rng_keys.KEY_SHAPE, dtype=rng_keys.KEY_DTYPE, device="cpu")
        else:
            value = node.target(*args, **kwargs)  # type: ignore[operator]
            if not fx.gives_views(node.target):
                value = traced.restrided(value, node.meta.get("val"))
    if isinstance(value, (int, float, bool)):
        return value
    node.meta = {**edit.inherited(node), "val": value}
    return node


def drop_identities(graph: Graph) -> bool:
    """Drop identities and checks, in place."""
    found = [n for n in fx.calls(graph) if n.target in edit.IDENTITIES or n.target in CHECKS]
    for node in found:
        if node.target in edit.IDENTITIES:
            edit.substitute(node, node.args[0])  # type: ignore[arg-type]
        else:
            graph.erase_node(node)
    return bool(found)
