"""FX graph with symbolic shapes + concrete arguments -> FX graph with static shapes.

XLA compiles static shapes only, so each combination of sizes gets a graph of its own. An int
argument that no shape depends on (a scale, a step count) stays an argument: a 0-d int64 tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import fx, rng_keys
from xla_dynamo.backend.graph.fx import is_symbolic

aten = torch.ops.aten
# Ops that do nothing to values, or only check what tracing has established.
_IDENTITIES = frozenset({aten.alias.default, aten.detach.default})
_CHECKS = frozenset(
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
    seen: set[Any] = set()
    placeholders = fx.placeholders(graph)
    for position, node in enumerate(placeholders):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and _only_data(node):
            runtime.add(position)
        elif is_symbolic(value):
            sources.append((position, None))
            seen.add(value.node.expr)  # pyright: ignore[reportOptionalMemberAccess]
    for position, node in enumerate(placeholders):
        value = node.meta.get("val")
        for dimension, size in enumerate(getattr(value, "shape", ())):
            if isinstance(size, torch.SymInt) and size.node.expr not in seen:
                seen.add(size.node.expr)
                sources.append((position, dimension))
    return Symbols(tuple(sources), frozenset(runtime))


def _only_data(node: Node) -> bool:
    """Whether an int placeholder reaches nothing but tensor-typed parameters of ops."""
    expression = node.meta["val"].node.expr
    if not expression.is_symbol or not node.users:
        return False
    for other in node.graph.nodes:
        shape = getattr(other.meta.get("val"), "shape", ())
        if any(
            isinstance(s, torch.SymInt) and expression in s.node.expr.free_symbols for s in shape
        ):
            return False
    return all(_takes_as_tensor(user, node) for user in node.users)


def _takes_as_tensor(user: Node, node: Node) -> bool:
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    parameters = user.target._schema.arguments
    names = {p.name: p for p in parameters}
    given = [*zip(parameters, user.args, strict=False)]
    given += [(names[name], value) for name, value in user.kwargs.items()]
    # In a list (shifts, strides) it is none, although no size may depend on it.
    taken = [p.type for p, value in given if node in pytree.tree_leaves(value)]
    return all(isinstance(kind, torch.TensorType) for kind in taken)


def specialize(graph: Graph, arguments: Sequence[Any], symbols: Symbols) -> Graph:
    """A copy of `graph` with every size that `arguments` determine made a number.

    Placeholders keep their positions; those of int arguments stay, unused, so that positions do.
    Values that turn out to be numbers become constants of the output.
    """
    return _Specializer(graph, arguments, symbols).run()


class _Specializer:
    def __init__(self, graph: Graph, arguments: Sequence[Any], symbols: Symbols) -> None:
        self._old = graph
        self._arguments = arguments
        self._symbols = symbols
        self._new = Graph()
        self._values: dict[Node, Any] = {}  # old node -> new node, number, or tuple of them
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)

    def run(self) -> Graph:
        position = 0
        for node in self._old.nodes:
            if node.op == "placeholder":
                self._values[node] = self._placeholder(node, position)
                position += 1
            elif node.op == "get_attr":
                self._values[node] = self._new.node_copy(node)
            elif node.op == "output":
                self._new.output(self._mapped(node.args[0]))
            else:
                self._values[node] = self._call(node)
        return self._new

    def _placeholder(self, node: Node, position: int) -> Any:
        new = self._new.placeholder(node.name)
        new.meta["argument"] = node.meta.get("argument")
        argument = self._arguments[position]
        if isinstance(argument, torch.Tensor):
            with self._mode:
                new.meta["val"] = torch.empty_strided(
                    argument.shape,
                    argument.stride(),
                    dtype=argument.dtype,
                    device=argument.device,
                )
        elif position in self._symbols.runtime_ints:
            with self._mode:
                new.meta["val"] = torch.empty((), dtype=torch.int64)
            new.meta["hint"] = argument
        else:
            new.meta["val"] = argument
            return argument
        return new

    def _call(self, node: Node) -> Any:
        args, kwargs = self._mapped(node.args), self._mapped(node.kwargs)
        if node.target in _IDENTITIES:
            return args[0]
        if node.target in _CHECKS:
            return None
        leaves = pytree.tree_leaves((args, kwargs))
        if not any(isinstance(leaf, Node) for leaf in leaves) and is_symbolic(node.meta.get("val")):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        value = self._infer(node, args, kwargs)
        if isinstance(value, (int, float, bool)):
            return value
        new = self._new.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
        new.meta = {"stack_trace": node.meta.get("stack_trace"), "val": value}
        return new

    def _infer(self, node: Node, args: Any, kwargs: Any) -> Any:
        def fake(leaf: Any) -> Any:
            return leaf.meta.get("hint", leaf.meta["val"]) if isinstance(leaf, Node) else leaf

        args, kwargs = pytree.tree_map(fake, (args, kwargs))
        if node.target is rng_keys.new_key:
            with self._mode:
                return torch.empty(rng_keys.KEY_SHAPE, dtype=rng_keys.KEY_DTYPE)
        with self._mode:
            return node.target(*args, **kwargs)  # type: ignore[operator]

    def _mapped(self, tree: Any) -> Any:
        return map_arg(tree, lambda node: self._values[node])


def tidy(graph: Graph) -> None:
    """Drop, in place, identities and checks of a graph that is static from the start."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _IDENTITIES:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target in _CHECKS:
            graph.erase_node(node)
