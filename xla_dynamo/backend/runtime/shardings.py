"""How a tensor lies on the devices of a partitioned program: as numbers, and as text for XLA.

    Grid: devices in a grid with named axes       Sharding: which axes split which dimension

Devices are told by number, from 0. The parts of a dimension are equal: one that does not divide is
padded at its end, in the arrays alone (executable/partitioned.py).
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Grid:
    """Devices in a grid; order: their numbers, row-major."""

    shape: tuple[int, ...]
    names: tuple[str, ...]
    order: tuple[int, ...]

    def attribute(self) -> str:
        """The grid as Shardy's dialect writes it."""
        axes = ", ".join(f'"{n}"={s}' for n, s in zip(self.names, self.shape, strict=True))
        if self.order == tuple(range(len(self.order))):
            return f"mesh<[{axes}]>"
        return f"mesh<[{axes}], device_ids=[{', '.join(map(str, self.order))}]>"


@functools.lru_cache(maxsize=16)
def line(devices: int) -> Grid:
    """All devices along one axis."""
    return Grid((devices,), ("device",), tuple(range(devices)))


@dataclass(frozen=True)
class Sharding:
    """dims: for each dimension of a tensor the numbers of the axes that split it, major first.

    role: what is computed with a part of a "batch" is split like it, before all else; a "parameter"
        is split to save memory: all of it is there where it is computed with, but for its update.
        What is "manual" is a tensor of each device: the array has all, one after the other.
    """

    grid: Grid
    dims: tuple[tuple[int, ...], ...]
    role: Literal["", "batch", "parameter", "manual"] = ""

    @functools.cached_property
    def counts(self) -> tuple[int, ...]:
        """How many parts each dimension has."""
        return tuple(math.prod(self.grid.shape[axis] for axis in axes) for axes in self.dims)

    @property
    def is_replicated(self) -> bool:
        """Whether each device has all of the tensor."""
        return math.prod(self.counts) == 1

    @functools.cached_property
    def tiles(self) -> np.ndarray:
        """The devices by part: a dimension for each of the tensor's, and one of replicas."""
        used = [axis for axes in self.dims for axis in axes]
        rest = [axis for axis in range(len(self.grid.shape)) if axis not in used]
        devices = np.array(self.grid.order).reshape(self.grid.shape).transpose(used + rest)
        return devices.reshape(*self.counts, -1)

    def attribute(self, priority: int = 0) -> str:
        """The sharding as an attribute of Shardy's dialect.

        priority: of several what others are split like; 0 comes first.
        """
        names, last = self.grid.names, f"p{priority}" if priority else ""
        dims = [
            "{" + ", ".join(f'"{names[axis]}"' for axis in axes) + "}" + (last if axes else "")
            for axes in self.dims
        ]
        return f"#sdy.sharding<{self.grid.attribute()}, [{', '.join(dims)}]>"

    def text(self) -> str:
        """The sharding as HLO writes it."""
        if self.role == "manual":
            return "{manual}"
        if self.is_replicated:
            return "{replicated}"
        *counts, replicas = self.tiles.shape
        shape = [*counts, replicas] if replicas > 1 else counts
        last = " last_tile_dim_replicate" if replicas > 1 else ""
        devices = ",".join(map(str, self.tiles.reshape(-1)))
        return f"{{devices=[{','.join(map(str, shape))}]{devices}{last}}}"

    def padded(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the array: of a tensor with each dimension made a multiple of its parts."""
        if self.role == "manual":
            first, *rest = shape or (1,)
            return (first * self.counts[0], *rest)
        return tuple(-(-size // n) * n for size, n in zip(shape, self.counts, strict=True))

    def part(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a part of a tensor, its padding included."""
        return tuple(-(-size // n) for size, n in zip(shape, self.counts, strict=True))

    def places(self, shape: Sequence[int]) -> list[tuple[tuple[slice, ...], int]]:
        """For each device its part of a tensor, without padding, and which replica of it it has."""
        lengths, found = self.part(shape), {}
        for *tile, replica in np.ndindex(self.tiles.shape):
            index = tuple(
                slice(min(i * length, size), min((i + 1) * length, size))
                for i, length, size in zip(tile, lengths, shape, strict=True)
            )
            found[int(self.tiles[(*tile, replica)])] = index, replica
        return [found[device] for device in range(len(found))]


_AXIS, _DIM = re.compile(r'"([^"]*)"=(\d+)'), re.compile(r"\{([^}]*)\}")


@functools.lru_cache(maxsize=4096)
def parse(attribute: str) -> Sharding:
    """The inverse of `Sharding.attribute`."""
    mesh, _, split = attribute.partition("]>, [")
    axes, _, ids = mesh.partition("device_ids=[")
    found = _AXIS.findall(axes)
    names, shape = tuple(name for name, _ in found), tuple(int(size) for _, size in found)
    order = tuple(map(int, ids.split(","))) if ids else tuple(range(math.prod(shape)))
    dims = [re.findall(r'"([^"]*)"', dim) for dim in _DIM.findall(split)]
    return Sharding(Grid(shape, names, order), tuple(tuple(map(names.index, dim)) for dim in dims))


def same_parts(tiles: np.ndarray, others: np.ndarray) -> bool:
    """Whether each device has the same part by both; replicas of one come in any order."""
    return np.array_equal(np.sort(tiles, -1), np.sort(others, -1))


def manual(grid: Grid, dims: int) -> Sharding:
    """Each device has a tensor with `dims` dimensions of its own."""
    every = tuple(range(len(grid.shape)))
    return Sharding(grid, (every, *[()] * (dims - 1)), "manual")


def replicated(grid: Grid, dims: int) -> Sharding:
    """All of a tensor with `dims` dimensions on each device."""
    return Sharding(grid, ((),) * dims)


def of_tiles(tiles: np.ndarray, grids: Iterable[Grid]) -> Sharding:
    """The sharding with these `tiles`, by the axes of one of `grids` where that can be."""
    counts = tiles.shape[:-1]
    for grid in grids:
        for dims in _splits(counts, grid, frozenset()):
            found = Sharding(grid, dims)
            if same_parts(found.tiles, tiles):
                return found
    names = tuple(f"tile{i}" for i in range(tiles.ndim))
    own = Grid(tuple(tiles.shape), names, tuple(int(device) for device in tiles.reshape(-1)))
    return Sharding(own, tuple((i,) if count > 1 else () for i, count in enumerate(counts)))


def _splits(
    counts: Sequence[int], grid: Grid, used: frozenset[int]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to split dimensions into as many parts by axes of `grid`."""
    if not counts:
        yield ()
        return
    free = [axis for axis, size in enumerate(grid.shape) if axis not in used and size > 1]
    for number in range(len(free) + 1):
        for axes in itertools.permutations(free, number):
            if math.prod(grid.shape[axis] for axis in axes) == counts[0]:
                for rest in _splits(counts[1:], grid, used.union(axes)):
                    yield (axes, *rest)
