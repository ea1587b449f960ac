"""Symbols that stand for one size, though Dynamo gave each a name: of tokens and of their labels.

Dynamo compares products of sizes, such as those of [s0 * s1, words] and of [s2 * s3]: what comes
of it is a guard, s0 * s1 == s2 * s3. Where s0 is s2 at a call, and s1 is s3, a program is padded
for that: otherwise its elements would have to be moved from one layout to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx

from .sizes import Numbers

Pair = tuple[Any, Any]


def pairs_of(graph: Graph, order: Sequence[Any], visible: int) -> tuple[Pair, ...]:
    """The symbols, in pairs, that are likely one size; `order` is that of the arguments.

    Backward must be able to tell what forward did: it knows the symbols that forward saves.
    """
    saved = fx.results(graph)[visible:]
    known = _symbols_in(saved) if saved else set(order)
    found: dict[Pair, None] = {}
    for guard in _guards(graph):
        sides = [_factors(side) for side in guard.args]
        if None in sides:
            continue
        left, right = ([s for s in order if s in side] for side in sides if side is not None)
        common = set(left) & set(right)
        left, right = ([s for s in side if s not in common] for side in (left, right))
        if len(left) == len(right):
            found |= dict.fromkeys(zip(left, right, strict=True))
    return tuple(pair for pair in found if known.issuperset(pair))


def _guards(graph: Graph) -> list[Any]:
    """The equations that Dynamo has assumed."""
    env = fx.shape_env(graph)
    guards = () if env is None else (guard.expr for guard in env.guards)
    return [guard for guard in guards if isinstance(guard, sympy.Eq)]


def _factors(side: Any) -> frozenset[Any] | None:
    """The symbols of which an expression is the product, each once; None if it is not."""
    factors = sympy.Mul.make_args(side)
    return frozenset(factors) if all(factor.is_symbol for factor in factors) else None


def _symbols_in(results: Iterable[Any]) -> set[Any]:
    """The symbols that can be read off values."""
    values = [r.meta.get("val") if isinstance(r, Node) else r for r in results]
    sizes = [size for value in values for size in (value, *getattr(value, "shape", ()))]
    return {n.node.expr for n in sizes if isinstance(n, torch.SymInt) and n.node.expr.is_symbol}


def alike(pairs: Iterable[Pair], real: Numbers) -> dict[Any, Any]:
    """By symbol, the one that it is at a call with these sizes."""
    found: dict[Any, Any] = {}
    for first, second in pairs:
        first = found.get(first, first)
        is_free = second not in found and second not in found.values()
        if is_free and first != second and real.get(first, 0) == real.get(second, 1):
            found[second] = first
    return found


def padded_alike(found: Mapping[Any, Any], buckets: Numbers) -> dict[Any, Any]:
    """Those that are padded to the same size."""
    return {a: b for a, b in found.items() if buckets.get(a, 0) == buckets.get(b, 1)}
