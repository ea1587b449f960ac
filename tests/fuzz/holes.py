"""A template and the tensors at hand -> a step: every hole filled with text that mostly fits.

`x f n b` (any, float, integer, bool) name the tensor that a step starts from; the other holes are
filled to go with it: `y g k m` broadcast with it, `z` expands to it, `d i ds` are its dimensions
and indices. A hole that comes twice is filled once. Eager PyTorch is the judge of what fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .shapes import SHAPES, Draw, between, one_of

_HOLE = re.compile(r"\{(\w+)\}")
_LARGEST = 200  # elements of a broadcast result
LARGEST_OF_LARGE = 500_000  # the same in programs of large tensors, and of any result there

_CONSTANTS: dict[str, Sequence[Any]] = {
    "flag": (False, True),
    "bit": (0, 1),
    "last": (0, -1),
    "small": (0, 1, 2, 3),
    "parts": (1, 2, 3),
    "step": (1, 2),
    "window": (1, 2, 3),
    "whole": (1, 2, 3, -2, 5),
    "int": (0, 1, -1, 2, 3),
    "s": (0, 1, 0.5, -1.5, 2, True),
    "p": (1.0, 0.5, 0.25, 2.0, 1.5),
    "unit": (0.0, 0.25, 0.5, 1.0),
    "order": (2, 1, 0, 3, "inf", "-inf"),
    "order_plain": (1, 2),
    "off": (0, 1, -1, 2, -2),
    "rounding": ("'floor'", "'trunc'"),
    "loss": ("'mean'", "'sum'", "'none'"),
    "reduce": ("'sum'", "'prod'", "'mean'", "'amax'", "'amin'"),
}


class Unfit(Exception):
    """Nothing at hand fits into a hole."""


def fill(draw: Draw, template: str, tensors: Mapping[str, Tensor], single: bool) -> str:
    """A step made of `template`; `single`: float32 may be used.

    Raises:
        Unfit: no tensor has the dtype or shape that the template asks for.
    """
    filler = _Filler(draw, tensors, single)
    return _HOLE.sub(lambda match: filler.fill(match[1]), template)


class _Filler:
    def __init__(self, draw: Draw, tensors: Mapping[str, Tensor], single: bool) -> None:
        self.draw = draw
        self.tensors = tensors
        self.single = single
        self.filled: dict[str, str] = {}
        self.first: Tensor | None = None
        self.dimension = 0

    def fill(self, hole: str) -> str:
        if hole not in self.filled:
            self.filled[hole] = self._text(hole)
        return self.filled[hole]

    def _text(self, hole: str) -> str:
        if hole in _CONSTANTS:
            return str(self._choose(_CONSTANTS[hole]))
        if hole in ("v", "w"):
            return f"t{len(self.tensors)}{hole}"
        if hole in _FIRST:
            name = self._pick(_FIRST[hole])
            if self.first is None:
                self.first = self.tensors[name]
            return name
        if self.first is None:
            raise Unfit(hole)
        if hole in _COMPANIONS:
            return self._companion(hole)
        if hole in SHAPES:
            return SHAPES[hole](self.draw, self.first)
        return getattr(self, f"_{hole}")(self.first)

    def _companion(self, hole: str) -> str:
        first = self.first
        assert first is not None
        test, otherwise = _COMPANIONS[hole]
        try:
            return self._pick(lambda tensor: test(first, tensor))
        except Unfit:
            if otherwise is None:
                raise
            return _HOLE.sub(lambda match: self.fill(match[1]), otherwise)

    def _pick(self, test: Callable[[Tensor], bool]) -> str:
        fitting = [name for name, tensor in self.tensors.items() if test(tensor)]
        if not fitting:
            raise Unfit
        return self._choose(fitting[::-1])

    def _choose(self, options: Sequence[Any]) -> Any:
        return one_of(self.draw, options)

    def _first(self, first: Tensor) -> str:
        return next(name for name, tensor in self.tensors.items() if tensor is first)

    def _d(self, first: Tensor) -> str:
        rank = max(first.dim(), 1)
        self.dimension = between(self.draw, 0, 2 * rank - 1) - rank
        return str(self.dimension)

    def _e(self, first: Tensor) -> str:
        rank = max(first.dim(), 1)
        return str(rank - 1 - between(self.draw, 0, 2 * rank - 1))

    def _i(self, first: Tensor) -> str:
        size = first.shape[self.dimension] if first.dim() else 0
        if not size:
            raise Unfit
        return str(between(self.draw, 0, size - 1))

    def _dtype(self, first: Tensor) -> str:
        return str(self._choose(dtypes(self.single)))

    def _dtype_up(self, first: Tensor) -> str:
        wider = [
            dtype for dtype in dtypes(self.single) if torch.can_cast(first.dtype, dtype)
        ]  # uint8 aside, no value is out of range
        return str(
            self._choose(
                [
                    dtype
                    for dtype in wider
                    if dtype.is_floating_point or not first.is_floating_point()
                ]
            )
        )


def dtypes(single: bool) -> list[torch.dtype]:
    wide = [torch.float64, torch.int64, torch.bool, torch.int32, torch.uint8]
    return [*wide, torch.float32] if single else wide


def is_integer(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.dtype is not torch.bool


def _broadcasts(first: Tensor, other: Tensor) -> bool:
    is_large = max(first.numel(), other.numel()) > _LARGEST
    try:
        count = torch.broadcast_shapes(first.shape, other.shape).numel()
        return count <= (LARGEST_OF_LARGE if is_large else _LARGEST)
    except RuntimeError:
        return False


def _expands(first: Tensor, other: Tensor) -> bool:
    try:
        shape = torch.broadcast_shapes(first.shape, other.shape)
    except RuntimeError:
        return False
    return shape == first.shape and torch.can_cast(other.dtype, first.dtype)


def _float(rank: int | None) -> Callable[[Tensor], bool]:
    return lambda tensor: tensor.is_floating_point() and rank in (None, tensor.dim())


def _any(rank: int | None) -> Callable[[Tensor], bool]:
    return lambda tensor: rank in (None, tensor.dim())


_FIRST: dict[str, Callable[[Tensor], bool]] = {
    "x": _any(None),
    "f": _float(None),
    "n": is_integer,
    "b": lambda tensor: tensor.dtype is torch.bool,
    **{f"x{rank}d": _any(rank) for rank in (1, 2, 3)},
    **{f"f{rank}d": _float(rank) for rank in (1, 2, 3)},
    **{f"x{rank}d_any": _any(rank) for rank in (1, 2)},
    **{"f_any": _float(None), "g_any": _float(None), "f2d_any": _float(2)},
    "s2": lambda tensor: tensor.is_floating_point() and tensor.dim() < 3,
}

_Companion = tuple[Callable[[Tensor, Tensor], bool], str | None]


def _same(first: Tensor, other: Tensor) -> bool:
    return first.shape == other.shape and first.dtype == other.dtype


def _alike(first: Tensor, other: Tensor) -> bool:
    return first.shape == other.shape


def _floats(first: Tensor, other: Tensor) -> bool:
    return other.is_floating_point() and _broadcasts(first, other)


# Which tensors go with the first one, and what to write where there is none.
_COMPANIONS: dict[str, _Companion] = {
    "y": (_broadcasts, None),
    "y2": (_broadcasts, None),
    "g": (_floats, "{y}.to(torch.float64)"),
    "g2": (_floats, "{y}.to(torch.float64)"),
    "k": (lambda a, b: is_integer(b) and _broadcasts(a, b), "({y} > {int}).long()"),
    "m": (lambda a, b: b.dtype is torch.bool and _broadcasts(a, b), "({y} > {int})"),
    "m_same": (lambda a, b: b.dtype is torch.bool and _alike(a, b), "({like} > {int})"),
    "same": (_same, None),
    "like": (_alike, None),
    "z": (_expands, None),
    "z2": (_expands, None),
    "n2": (
        lambda a, b: b.dtype is torch.int64 and b.numel() <= 12,
        "torch.arange({parts}, device={first}.device)",
    ),
    "n1d": (
        lambda a, b: b.dtype is torch.int64 and b.dim() == 1,
        "torch.arange({parts}, device={first}.device)",
    ),
    "n2same": (
        lambda a, b: b.dtype is torch.int64 and _alike(a, b),
        "({like} > {int}).long()",
    ),
}
