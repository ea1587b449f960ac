"""Sizes that may be symbols: what they are for the sizes of a call, and for its buckets."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import sympy
import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx

Expression = sympy.Expr
Size = int | Expression
Numbers = Mapping[Any, int]


class Refused(Exception):
    """Something has no padded form: the symbols of `sizes`, or of the op, get exact sizes."""

    def __init__(self, reason: str, sizes: Iterable[Any] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.symbols = symbols_of(sizes)
        self.node: Node | None = None

    @classmethod
    def at(cls, node: Node, reason: str, symbols: frozenset[Any]) -> Refused:
        """The refusal of a node."""
        refused = cls(reason, symbols)
        refused.node = node
        return refused


def is_symbolic(size: Any) -> TypeGuard[Expression]:
    """Whether a size depends on a symbol."""
    return isinstance(size, sympy.Basic) and bool(size.free_symbols)


def symbols_of(sizes: Iterable[Any]) -> frozenset[Any]:
    """The symbols on which sizes depend."""
    return frozenset(s for size in sizes if is_symbolic(size) for s in size.free_symbols)


def simplified(size: Any) -> Any:
    """A size as an int where it is one."""
    if isinstance(size, sympy.Integer):
        return int(size)
    if isinstance(size, sympy.Basic) and size.is_number and not size.is_integer:
        return float(size)  # type: ignore[arg-type]
    return size


def expression(value: Any, known: Mapping[Any, Any]) -> Any:
    """The number or expression of a size, of a SymFloat, or of a node that is one.

    known: what symbols are: numbers, or other symbols.
    """
    if isinstance(value, Node):
        value = value.meta["val"]
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        found = simplified(value.node.expr.xreplace(_sympy_numbers(known)))
        return float(found) if isinstance(value, torch.SymFloat) and _is_int(found) else found
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int)


def _sympy_numbers(numbers: Mapping[Any, Any]) -> dict[Any, Any]:
    return {s: sympy.Integer(n) if isinstance(n, int) else n for s, n in numbers.items()}


def evaluated(size: Any, numbers: Numbers) -> Any:
    """What a size is for these values of the symbols."""
    return simplified(size.xreplace(_sympy_numbers(numbers))) if is_symbolic(size) else size


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes."""
    return simplified(sympy.expand(functools.reduce(lambda a, b: a * b, sizes, sympy.Integer(1))))


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are one expression."""
    return a == b or (is_symbolic(a) and is_symbolic(b) and sympy.expand(a - b) == 0)


def symbols_of_shapes(graph: Graph) -> frozenset[Any]:
    """The symbols in shapes; those of numbers that data decide are no sizes of arguments."""
    shapes = [getattr(node.meta.get("val"), "shape", ()) for node in graph.nodes]
    found = symbols_of(n.node.expr for s in shapes for n in s if isinstance(n, torch.SymInt))
    return frozenset(s for s in found if str(s).startswith("s"))


def largest_sizes(graph: Graph) -> dict[Any, int]:
    """The largest values that Dynamo admits, by symbol: of mark_dynamic, or of a guard."""
    env = fx.shape_env(graph)
    ranges = {} if env is None else env.var_to_range
    return {s: int(r.upper) for s, r in ranges.items() if isinstance(r.upper, sympy.Integer)}
