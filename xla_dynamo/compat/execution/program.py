"""The compiled program of a trace, and what it takes and gives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xla_dynamo.compat.values.values import Array

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import padded_arrays

Zeros = tuple[int, tuple[int, ...], Any]  # the position of an argument, its shape and dtype
Run = Callable[[list[Array]], Sequence[Array]]


class Launch:
    """An executable, of one device or of many processes, that takes its arrays in a list."""

    __slots__ = ("__weakref__", "executable")

    def __init__(self, executable: Any) -> None:
        self.executable = executable

    def __call__(self, arrays: list[Array]) -> Sequence[Array]:
        return self.executable(*arrays)


@dataclass(frozen=True)
class Program:
    """The compiled program of a trace.

    run: arrays of the used inputs, then of scalars and seeds -> arrays of the live values; gone
        where as many others as program_cache keeps were compiled since.
    inputs: which of the trace's inputs it uses.
    scalars: (dtype, which of the trace's numbers) for each vector of numbers it takes.
    seeds: which of the trace's random ops it runs.
    results: which of the trace's values it computes.
    watch: which of the results tells that it has ended: a small one.
    cuts: by position, how the results that have padding are made without it.
    constants: more numbers, after those of the trace.
    fresh: arguments of zeros, between the others: see fresh_state.
    """

    run: weakref.ref[Run]
    inputs: tuple[int, ...]
    scalars: tuple[tuple[Any, tuple[int, ...]], ...]
    seeds: tuple[int, ...]
    results: tuple[int, ...]
    watch: int = 0
    cuts: Mapping[int, padded_arrays.Cut] | None = None
    constants: tuple[int, ...] = ()
    fresh: tuple[Zeros, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """All but the executable."""
        scalars = [(np.dtype(dtype).name, numbers) for dtype, numbers in self.scalars]
        names = ("inputs", "seeds", "results", "watch")
        fresh = [(place, shape, np.dtype(dtype).name) for place, shape, dtype in self.fresh]
        return {"scalars": scalars, "fresh": fresh, **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_json(cls, run: Run, told: dict[str, Any]) -> Program:
        """The inverse of `as_json`."""
        scalars = [(np.dtype(name).type, tuple(numbers)) for name, numbers in told["scalars"]]
        inputs, seeds, results = (tuple(told[name]) for name in ("inputs", "seeds", "results"))
        fresh = tuple((at, tuple(shape), np.dtype(name)) for at, shape, name in told["fresh"])
        taken = weakref.ref(run), inputs, tuple(scalars), seeds
        return cls(*taken, results, told["watch"], fresh=fresh)
