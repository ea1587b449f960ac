"""What a program is padded for, and what whoever runs it has to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from xla_dynamo.bounded import Bounded

from .layouts import Dim
from .sizes import Numbers

Dims = tuple[Dim, ...]
# (symbol, its exact size), and (symbol, other that it is at the call), for a program of forward.
Way = tuple[frozenset[tuple[Any, int]], frozenset[tuple[Any, Any]]]
# There is one for each exact size, too.
_WAYS = 1024


def ways() -> Bounded[Way, Dims]:
    """The dimensions of one saved value, by what they are for."""
    return Bounded(_WAYS)


@dataclass(eq=False)
class Agreement:
    """What the graphs of one capture agree on: forward pads for backward.

    exact: the symbols that get exact sizes.
    names: what has the size that a symbol is, as the user calls it.
    saved: by name, the dimensions of what forward has saved.
    pairs: of symbols that are likely one size; forward finds them.
    """

    exact: set[Any] = field(default_factory=set)
    names: dict[Any, str] = field(default_factory=dict)
    saved: dict[str, Bounded[Way, Dims]] = field(default_factory=dict)
    pairs: tuple[tuple[Any, Any], ...] | None = None


@dataclass(frozen=True)
class Plan:
    """What sizes of a graph are compiled for.

    buckets, exact: the numbers that symbols stand for; those of `exact` are not padded.
    visible: how many leading results the user sees.
    layouts: of arguments, by name, that another program has padded.
    alike: symbols that are another one at the call.
    """

    buckets: Numbers
    exact: Numbers
    visible: int = 0
    layouts: Mapping[str, Dims] = field(default_factory=dict)
    alike: Mapping[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """How a result of the traced graph is made of those of the padded program.

    dims: of a tensor. strides: those that were traced for it.
    argument, result: the position of the argument or result that it is, or a view of.
    view_ops: what makes the view, with sizes as expressions.
    number: an int or a float of the host, as an expression.
    """

    dims: Dims | None = None
    strides: tuple[Any, ...] = ()
    argument: int | None = None
    result: int | None = None
    view_ops: tuple[tuple[Any, tuple[Any, ...], dict[str, Any]], ...] = ()
    number: Any = None


@dataclass(frozen=True)
class PaddedGraph:
    """A graph whose sizes are those of buckets.

    names, arguments: of its arguments, and the dimensions of those that are tensors.
    results: of the graph as it was traced.
    numbers: what its last arguments hold, which are 1-d: their dtypes, and expressions.
    sizes: none may be larger at a call than in the program.
    """

    plan: Plan
    names: tuple[str, ...]
    arguments: tuple[Dims | None, ...]
    results: tuple[Result, ...]
    numbers: tuple[tuple[torch.dtype, tuple[Any, ...]], ...]
    sizes: frozenset[Any]
