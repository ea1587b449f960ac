"""How an integer of a trace depends on sizes that change, found from how they changed together.

The history of a number is what it was in each window seen. A formula that gives a history need not
be the right one: whoever takes it compares what it gives for later windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

History = tuple[int, ...]
# Of how many known numbers products and quotients are tried: the sizes themselves come first.
_TRIED = 24


def formula(history: History, known: Mapping[History, Any]) -> Any | None:
    """An expression of known numbers that has this history; None if none of these forms has.

    known: integers, or what stands for them, by their histories.
    """
    if history in known:
        return known[history]
    tried = list(known.items())[:_TRIED]
    for form in (_multiple, _shifted, _part):
        for old, value in tried:
            made = form(history, old)
            if made is not None:
                return made(value)
    for of_two in _products(history, tried):
        return of_two
    for form in (_line, _floor):
        for old, value in tried:
            made = form(history, old)
            if made is not None:
                return made(value)
    return None


_Form = Callable[[Any], Any] | None


def position(history: History, known: Mapping[History, Any]) -> Any | None:
    """As `formula`, of where something is: a size, or one less, or a half, and no coincidence."""
    if history in known:
        return known[history]
    for form in (_shifted, _part, _floor):
        for old, value in list(known.items())[:_TRIED]:
            made = form(history, old)
            if made is not None:
                return made(value)
    return None


def _ratio(history: History, old: History) -> int | None:
    """The integer by which each number of `old` is to be multiplied."""
    if not all(old) or any(new % was for new, was in zip(history, old, strict=True)):
        return None
    found = {new // was for new, was in zip(history, old, strict=True)}
    return found.pop() if len(found) == 1 else None


def _multiple(history: History, old: History) -> _Form:
    factor = _ratio(history, old)
    return None if factor is None else lambda x: x * factor


def _part(history: History, old: History) -> _Form:
    divisor = _ratio(old, history)
    return None if divisor is None else lambda x: x // divisor


def _shifted(history: History, old: History) -> _Form:
    by, *others = {new - was for new, was in zip(history, old, strict=True)}
    return None if others else lambda x: x + by


def _line(history: History, old: History) -> _Form:
    pairs = sorted(set(zip(old, history, strict=True)))
    (x0, y0), (x1, y1) = pairs[0], pairs[-1]
    if x0 == x1 or (y1 - y0) % (x1 - x0):
        return None
    slope = (y1 - y0) // (x1 - x0)
    start = y0 - slope * x0
    fits = all(y == slope * x + start for x, y in pairs)
    return (lambda x: slope * x + start) if fits else None


def _floor(history: History, old: History) -> _Form:
    """old // divisor, rounded down or up."""
    if min(history) < 1 or max(history) >= max(old):
        return None
    for divisor in range(2, old[0] // history[0] + 2):
        if tuple(n // divisor for n in old) == history:
            return lambda x, by=divisor: x // by
        if tuple(-(-n // divisor) for n in old) == history:
            return lambda x, by=divisor: (x + (by - 1)) // by
    return None


def _products(history: History, tried: list[tuple[History, Any]]) -> Iterator[Any]:
    for i, (first, x) in enumerate(tried):
        for second, y in tried[i:]:
            factor = _ratio(history, tuple(a * b for a, b in zip(first, second, strict=True)))
            if factor is not None:
                yield x * y * factor if factor != 1 else x * y
    for first, x in tried:
        for second, y in tried:
            found = all(second) and tuple(a // b for a, b in zip(first, second, strict=True))
            if found == history:
                yield x // y
