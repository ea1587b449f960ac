"""The form that traces of one structure have in common: a graph, and a formula for each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch.fx import Graph
from torch.fx.experimental.symbolic_shapes import ShapeEnv

Numbers = Mapping[Any, sympy.Integer]


class Unfit(Exception):
    """The windows seen have no common form with symbols for sizes."""


@dataclass(frozen=True)
class SymbolicTrace:
    """The form that windows of one structure have in common.

    inputs, scalars, seeds: see `program.Program`; watch: the position of a small result.
    more: positions, in the sizes of a window, of the integers that the graph takes after those.
    symbols: by symbol, the position of its value in the sizes of a window.
    formulas: what each size of a window is, an int or an expression; None: whatever it is.
    assumed: about symbols, as conditions.
    """

    graph: Graph
    inputs: tuple[int, ...]
    scalars: Any
    seeds: tuple[int, ...]
    watch: int
    more: tuple[int, ...]
    symbols: Mapping[Any, int]
    formulas: tuple[Any, ...]
    assumed: tuple[Any, ...]
    env: ShapeEnv

    def fits(self, sizes: Sequence[int]) -> bool:
        """Whether a window of these sizes is this trace, exactly."""
        if not self.applies(sizes):
            return False
        numbers = self._numbers(sizes)
        values = {f: _at(f, numbers) for f in set(self.formulas) if isinstance(f, sympy.Basic)}
        pairs = zip(self.formulas, sizes, strict=True)
        return all(f is None or values.get(f, f) == n for f, n in pairs)

    def applies(self, sizes: Sequence[int]) -> bool:
        """Whether all that is assumed holds for these sizes."""
        numbers = self._numbers(sizes)
        are_sizes = self.holds and all(n > 1 for n in numbers.values())
        return are_sizes and all(c.xreplace(numbers) == sympy.true for c in self.assumed)

    def _numbers(self, sizes: Sequence[int]) -> Numbers:
        return {symbol: sympy.Integer(sizes[at]) for symbol, at in self.symbols.items()}

    @property
    def holds(self) -> bool:
        """Whether nothing more was assumed since."""
        return assumed_by(self.env) == self.assumed


def _at(expression: Any, numbers: Numbers) -> int | None:
    found = expression.xreplace(numbers)
    return int(found) if found.is_number and found.is_integer else None


def assumed_by(env: ShapeEnv) -> tuple[Any, ...]:
    """What has been assumed about symbols so far, as conditions."""
    relations = [sympy.Eq(symbol, other) for symbol, other in env.replacements.items()]
    return (*(guard.expr for guard in env.guards), *relations)
