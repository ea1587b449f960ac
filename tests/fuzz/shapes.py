"""A tensor's shape -> text of shapes, permutations, pads and indices that fit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

# draw(n) is a number below n; 0 is the simplest.
Draw = Callable[[int], int]


def one_of(draw: Draw, options: Sequence[Any]) -> Any:
    """One of the options; the first is the simplest."""
    return options[draw(len(options))]


def between(draw: Draw, low: int, high: int) -> int:
    return low + draw(high - low + 1)


def chance(draw: Draw, percent: int) -> bool:
    return one_of(draw, range(100)) >= 100 - percent


_LARGEST = 200


def _reshaped(draw: Draw, x: Tensor) -> str:
    """Neighbouring dimensions merged, one dimension split, ones put in, or a -1."""
    shape = list(x.shape)
    for _ in range(between(draw, 1, 3)):
        at = between(draw, 0, len(shape))
        kind = one_of(draw, ("one", "merge", "split"))
        if kind == "one":
            shape.insert(at, 1)
        elif kind == "merge" and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif kind == "split" and at < len(shape) and shape[at]:
            divisors = [n for n in range(1, shape[at] + 1) if not shape[at] % n]
            by = one_of(draw, divisors)
            shape[at : at + 1] = [by, shape[at] // by]
    if shape and x.numel() and draw(2):
        shape[between(draw, 0, len(shape) - 1)] = -1
    return str(tuple(shape))


def _permutation(draw: Draw, x: Tensor) -> str:
    order = list(range(x.dim()))
    return str(tuple(order.pop(draw(len(order))) for _ in range(x.dim())))


def _bigger(draw: Draw, x: Tensor) -> str:
    shape = [
        one_of(draw, (-1, 2, 3, 0)) if size == 1 else one_of(draw, (size, -1)) for size in x.shape
    ]
    front = one_of(draw, ([], [2], [1], [1, 2], [0]))
    return str((*front, *shape))


def _strided(draw: Draw, x: Tensor) -> str:
    """A window onto the memory that the tensor is in, if what that memory was made for is dense."""
    owner = x if x._base is None else x._base
    rows, columns = between(draw, 1, 3), between(draw, 1, 3)
    row, column = between(draw, 0, 2), between(draw, 0, 2)
    kind = one_of(draw, ("none", "near", "of memory"))
    first = owner.storage_offset() if kind == "of memory" else x.storage_offset()
    offset = first if kind == "none" else first + between(draw, 0, 1)
    last = offset + (rows - 1) * row + (columns - 1) * column
    dense = owner.is_contiguous() and owner.dtype == x.dtype
    if not dense or last >= owner.storage_offset() + owner.numel():
        return "(1,), (1,), 9999"  # eager refuses, and another step is drawn
    return f"({rows}, {columns}), ({row}, {column})" + ("" if kind == "none" else f", {offset}")


def _pads(draw: Draw, x: Tensor) -> str:
    sides = 2 * between(draw, 0, min(x.dim(), 3))
    return str([one_of(draw, (0, 1, 2, -1)) for _ in range(sides)])


def _pad2(draw: Draw, x: Tensor) -> str:
    return str([between(draw, 0, 2) for _ in range(2)])


def _repeats(draw: Draw, x: Tensor) -> str:
    rank = x.dim() + between(draw, 0, 1)
    repeats = [one_of(draw, (1, 2, 3, 0)) for _ in range(rank)]
    total = x.numel()
    for count in repeats:
        total *= count
    return str(tuple(repeats if total <= _LARGEST else [1] * rank))


def _dims(draw: Draw, x: Tensor) -> str:
    """One dimension, some, or none (which means all)."""
    if not x.dim():
        return one_of(draw, ("0", "-1", "[]"))
    rank = x.dim()
    chosen = [dim for dim in range(rank) if draw(2)]
    return str([dim - rank if draw(2) else dim for dim in chosen])


def _new_dimension(draw: Draw, x: Tensor) -> str:
    return str(between(draw, -x.dim() - 1, x.dim()))


def _index(draw: Draw, x: Tensor) -> str:
    """Slices, whole numbers, None and an ellipsis."""
    if not x.dim():
        return one_of(draw, ("...", "None", "()"))
    parts = [_part(draw, size) for size in x.shape[: between(draw, 1, x.dim())]]
    extra = one_of(draw, ("", "None", "..."))
    if extra == "None":
        parts.insert(between(draw, 0, len(parts)), "None")
    if extra == "..." and len(parts) == x.dim():
        parts[between(draw, 0, len(parts) - 1)] = "..."
    return ", ".join(parts)


def _part(draw: Draw, size: int) -> str:
    kind = one_of(draw, (":", "a:b", "whole", "step", "from the end"))
    if kind == "whole" and size:
        return str(between(draw, -size, size - 1))
    if kind == "step":
        return f"{between(draw, 0, 1)}::{between(draw, 1, 3)}"
    if kind == "from the end":
        return f"-{between(draw, 1, 3)}:"
    if kind == "a:b":
        return f"{between(draw, 0, 2)}:{between(draw, 0, 4)}"
    return ":"


def _picks(draw: Draw, x: Tensor) -> str:
    """Lists of positions, alone or among slices."""
    lists: Sequence[str] = ("[0, -1]", "[-1]", "[0, 0]", "[0]")
    parts = [one_of(draw, (*lists, ":", "0")) for _ in range(between(draw, 1, max(x.dim(), 1)))]
    return ", ".join([*parts, "..."] if draw(2) else parts)


SHAPES: dict[str, Callable[[Draw, Tensor], str]] = {
    "shape": _reshaped,
    "perm": _permutation,
    "bigger": _bigger,
    "strided": _strided,
    "pads": _pads,
    "pad2": _pad2,
    "repeats": _repeats,
    "ds": _dims,
    "newd": _new_dimension,
    "index": _index,
    "picks": _picks,
}
