"""Integers that only select: the index of x[i], where a slice of a given length begins, a shift.

They decide which elements an op takes or writes, and have no part in the shape of its result. With
them taken out, the key of such an op is the same for every step of a sampler, say, or for every
position of a cache, and so is the program. Slices are kept by their length, as the forms take them
by which the ops enter a graph (backend/decompositions/selected.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .trie import INT, State, contains
from .values import Meta, Ref

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Choice:
    """The key of an op with `INT` for each integer that only selects, and those integers.

    positional: how many of its arguments are not named.
    """

    key: tuple[Any, ...]
    positional: int
    numbers: tuple[int, ...]


def choice(key: tuple[Any, ...], positional: int, metas: Callable[[Ref], Meta]) -> Choice | None:
    """What an op of this key, which has no `INT`, chooses; None without integers that only select.

    metas: the meta of a value of the trace.
    """
    rule = _RULES.get(key[0].func)
    if rule is None:
        return None
    first = key[1]
    found = rule(metas(first).shape if type(first) is Ref else (), *key[1 : 1 + positional])
    if found is None:
        return None
    arguments, numbers = found
    return Choice((key[0], *arguments, *key[1 + positional :]), len(arguments), numbers)


def chosen(key: tuple[Any, ...], numbers: Sequence[Any]) -> tuple[Any, ...]:
    """The key of an op that chooses these numbers, which may be expressions: undoes `choice`."""
    left, found = iter(numbers), list(key)
    for position, item in enumerate(key):
        if item is INT:
            start = found[position] = next(left)
            if key[0].func in _WITH_END:
                length, step = key[position + 1 : position + 3]
                is_span = key[0].func not in _RANGES
                found[position + 1] = start + length if is_span else start + length * step
        elif type(item) is tuple and INT in item:
            found[position] = tuple([next(left) for _ in item])
    return tuple(found)


def alike(
    parents: Iterable[State | None], choice: Choice, metas: Callable[[Ref], Meta]
) -> State | None:
    """What followed a parent by the same op, with any integers in the place of the choice's."""
    for parent in filter(None, parents):
        for state in parent.children.values():
            if state.op is choice.key[0] and _general(state, metas) == choice.key:
                return state
    return None


def forget(parent: State, choice: Choice, metas: Callable[[Ref], Meta]) -> None:
    """Take the states of single integers out of the trie: from now on they are inputs here."""
    while (old := alike((parent,), choice, metas)) is not None:
        del parent.children[old.key]
        parent.replaced = old
        if parent.first is old:
            parent.first_key = parent.first = None


def _general(state: State, metas: Callable[[Ref], Meta]) -> tuple[Any, ...]:
    key = state.key
    found = None if contains(key, INT) else choice(key, state.positional, metas)
    return key if found is None else found.key


_Found = tuple[tuple[Any, ...], tuple[int, ...]]
# From the shape of an op's first tensor and its arguments, lists as tuples: the arguments with
# `INT`, and the integers. None: eager refuses these, or they decide about the shape.
_Rule = Callable[..., _Found | None]


def _size(shape: Sequence[int], dim: int) -> int | None:
    return shape[dim] if -len(shape) <= dim < len(shape) else None


def _index(shape: Sequence[int], dim: int, index: int) -> tuple[int, ...]:
    """The index, counted from the beginning; empty where eager raises."""
    size = _size(shape, dim) or 0
    return (index % size,) if -size <= index < size else ()


def _span(
    shape: Sequence[int], dim: int, start: int | None, end: int | None, step: int
) -> tuple[int, int]:
    """Where a slice begins, and the distance from there to behind its last element."""
    size = _size(shape, dim)
    if size is None or step < 1:
        return 0, 0
    first, last, _ = slice(start, end).indices(size)
    length = len(range(first, last, step))
    return first, (length - 1) * step + 1 if length else 0


def _selects(kept: int, sizes_at: int | None = None) -> _Rule:
    """The rule of an op that takes `kept` arguments, a dimension and an index.

    sizes_at: which argument says what is indexed, where the first tensor is not it.
    """

    def rule(shape: Sequence[int], *args: Any) -> _Found | None:
        dim, index = args[kept:]
        found = _index(shape if sizes_at is None else args[sizes_at], dim, index)
        return ((*args[:kept], dim, INT), found) if found else None

    return rule


_WHOLE: tuple[Any, ...] = (
    0,
    None,
    None,
    1,
)  # the dimension, start, end and step that a slice may leave out


def _slices(kept: int, sizes_at: int | None = None) -> _Rule:
    """As `_selects`, of a dimension, a start, an end and a step."""

    def rule(shape: Sequence[int], *args: Any) -> _Found | None:
        given = args[kept:]
        dim, start, end, step = (*given, *_WHOLE[len(given) :])
        sizes = shape if sizes_at is None else args[sizes_at]
        first, span = _span(sizes, dim, start, end, step)
        return ((*args[:kept], dim, INT, span, step), (first,)) if span else None

    return rule


def _roll(
    shape: Sequence[int], x: Any, shifts: tuple[int, ...], dims: tuple[int, ...] = ()
) -> _Found | None:
    sizes = [_size(shape, dim) for dim in dims] if dims else [math.prod(shape)]
    if len(sizes) != len(shifts) or not all(sizes):
        return None
    numbers = tuple(shift % size for shift, size in zip(shifts, sizes, strict=True) if size)
    return ((x, (INT,) * len(shifts), dims), numbers)


def _arange(_: Sequence[int], start: Any, end: Any, step: Any = 1) -> _Found | None:
    if not type(start) is type(end) is type(step) is int or step == 0:
        return None
    length = len(range(start, end, step))
    return ((INT, length, step), (start,)) if length else None


_RULES: dict[Any, _Rule] = {
    aten.select_copy.int: _selects(1),
    aten.select_scatter.default: _selects(2),
    aten.select_backward.default: _selects(2, sizes_at=1),
    aten.slice_copy.Tensor: _slices(1),
    aten.slice_scatter.default: _slices(2),
    aten.slice_backward.default: _slices(2, sizes_at=1),
    aten.roll.default: _roll,
    aten.arange.start: _arange,
    aten.arange.start_step: _arange,
}
_RANGES = frozenset({aten.arange.start, aten.arange.start_step})
# Ops that are given an end, in the place of which their keys have a length.
_WITH_END = _RANGES | {
    *(aten.slice_copy.Tensor, aten.slice_scatter.default, aten.slice_backward.default)
}


def chooses(state: State) -> bool:
    """Whether the integers of an op that only select are inputs."""
    return state.op.func in _RULES and contains(state.key, INT)
