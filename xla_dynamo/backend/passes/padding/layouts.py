"""Where the elements of a dimension are after padding.

A dimension of size s that is padded to P has its elements first and padding behind them. After
[s, t] -> [s * t], padding is in between as well: the dimension then has two factors, outermost
first, each valid below its own size. `reshaped` follows factors through a reshape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from .sizes import Size, is_symbolic, product, same, simplified

Factors = tuple[Size, ...]


@dataclass(frozen=True)
class Dim:
    """A dimension.

    size: without padding.
    factors: sizes whose product is `size`; None where the values are the same at all positions,
        padding included, as in what was expanded: any layout is right.
    """

    size: Size
    factors: Factors | None

    @property
    def is_padded(self) -> bool:
        """Whether positions may be padding."""
        return is_symbolic(self.size)

    @property
    def is_plain(self) -> bool:
        """Whether the padding, if any, is behind the elements."""
        return self.factors is None or len(self.factors) < 2

    def plainly(self) -> Dim:
        """The same size with padding, if any, behind the elements."""
        return plain(self.size)


def plain(size: Size) -> Dim:
    """A dimension with its padding, if any, behind its elements."""
    return Dim(size, (size,) if size != 1 else ())


def constant(size: Size) -> Dim:
    """A dimension along which all values are the same."""
    return Dim(size, None) if is_symbolic(size) else plain(size)


def with_factors(size: Size, factors: Sequence[Size]) -> Dim:
    """A dimension with these factors, the fewest that say the same."""
    merged = _merged(factors)
    return Dim(size, tuple(merged) if len(merged) != 1 else (size,))


def _merged(factors: Sequence[Size]) -> list[Size]:
    """The fewest factors: one that is static, thus valid everywhere, extends the one before."""
    merged: list[Size] = []
    for factor in factors:
        if merged and not is_symbolic(factor):
            merged[-1] = product([merged[-1], factor])
        elif factor != 1:
            merged.append(factor)
    return merged


def factors_of(dim: Dim) -> Factors:
    """The factors of a dimension; where any would do, its size."""
    return (dim.size,) if dim.factors is None else dim.factors


def _divides(a: Size, b: Size) -> bool:
    """Whether b / a is a product of sizes and numbers."""
    return sympy.fraction(sympy.cancel(sympy.sympify(b) / a))[1] == 1


def _over(a: Size, b: Size) -> Size:
    return simplified(sympy.cancel(sympy.sympify(a) / b))


def reshaped(dims: Sequence[Dim], sizes: Sequence[Size]) -> list[Dim] | None:
    """The dimensions of a reshape to `sizes`, which moves no element; None if it had to."""
    if 0 in sizes:
        return None
    left = _merged([f for dim in dims for f in factors_of(dim)])
    result = []
    for size in sizes:
        taken: list[Size] = []
        while not same(product(taken), size):
            if not left:
                return None
            factor, missing = left.pop(0), _over(size, product(taken))
            if _divides(factor, missing):
                taken.append(factor)
                continue
            rest = _over(factor, missing)
            if not isinstance(rest, int) or not _divides(product(taken), size):
                return None
            taken.append(missing)  # the outer part of `factor`, whose inner part is static
            left.insert(0, rest)
        result.append(with_factors(size, taken))
    return result if not left or product(left) == 1 else None
