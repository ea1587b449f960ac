"""The trie of ops that all traces of a device share.

A node is a `State`: what has been recorded so far. An edge is the key of an op: the op, then for
each argument the `Ref` of a value, a `Token`, or the argument itself where it is hashable and equal
only to itself (ints, strings, dtypes; lists are tuples).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from xla_dynamo.bounded import Bounded

from .op_table import Op
from .source_location import Location
from .values import Meta, Ref

# The results of an op: a Meta for a tensor, None, or a list or tuple of them.
Outputs = Any


@dataclass(eq=False, slots=True, repr=False)
class Number:
    """In an op's arguments: the number that is scalar input `index` of the trace."""

    index: int
    dtype: torch.dtype | type  # of a 0-d CPU tensor, or int or float

    def __repr__(self) -> str:
        return f"scalar{self.index}"


@dataclass(eq=False, slots=True, repr=False)
class State:
    """A node of the trie: the op that led here, and what can follow.

    key: the edge that leads here: the op and what stands for its arguments, of which the first
        `positional` are not named.
    scalars: how many numbers the trace had collected before this op.
    location: the user's line that first recorded it.
    collective: whether this op, or one before it, is one among replicas.
    programs: what runs the trace that ends here, by which results live and inputs die.
    replaced: what followed until an integer that only selects became an input, for reports.
    """

    parent: State | None = None
    key: tuple[Any, ...] = ()
    positional: int = 0
    scalars: int = 0
    outputs: Outputs = None
    location: Location | None = None
    collective: bool = False
    first_key: Any = None  # most states have one child: compare before hashing
    first: State | None = None
    children: dict[Any, State] = field(default_factory=dict)
    programs: dict[Any, Any] = field(default_factory=dict)
    replaced: State | None = None

    @property
    def op(self) -> Op:
        return self.key[0]

    @property
    def args(self) -> list[Any]:
        """The positional arguments: `Ref`s for values, `Number`s for scalar inputs."""
        return self._arguments()[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._arguments()[1]

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        indices = itertools.count(self.scalars)

        def value_of(item: Any) -> Any:
            if type(item) is tuple:
                return [value_of(part) for part in item]
            if type(item) is Token:
                return Number(next(indices), item.value) if item.number else item.value
            return item

        split = 1 + self.positional
        args = [value_of(item) for item in self.key[1:split]]
        named = self.key[split:]
        return args, {
            name: value_of(item) for name, item in zip(named[::2], named[1::2], strict=True)
        }

    def path(self) -> list[State]:
        """The states from the first op of the trace to this one."""
        states: list[State] = []
        state: State | None = self
        while state is not None and state.parent is not None:
            states.append(state)
            state = state.parent
        return states[::-1]


@dataclass(eq=False, slots=True, repr=False)
class Token:
    """Stands in a key for a number of the trace, or for a constant that would equal another.

    value: the constant, or of a number its dtype, or int or float.
    """

    value: Any
    number: bool = False

    def __repr__(self) -> str:
        return repr(self.value)


TRUE, FALSE = Token(True), Token(False)
FLOAT, INT = Token(float, number=True), Token(int, number=True)
_constants: Bounded[str, Token] = Bounded(65_536)  # by text: 1.0 == 1 == True, and -0.0 == 0.0
_zero_dim: dict[torch.dtype, Token] = {}


def constant(value: complex) -> Token:
    """The token of a number that is a constant of the program."""
    text = repr(value)
    return _constants.get(text) or _constants.setdefault(text, Token(value))


def zero_dim(dtype: torch.dtype) -> Token:
    """The token of a 0-d CPU tensor, whose value is an input of the trace."""
    return _zero_dim.get(dtype) or _zero_dim.setdefault(dtype, Token(dtype, number=True))


def numbers_in(key: tuple[Any, ...]) -> int:
    """How many numbers of the trace an op takes."""
    return sum(item.number for item in _flat(key) if type(item) is Token)


def contains(key: tuple[Any, ...], token: Token) -> bool:
    """Whether a token stands for an argument of an op, or for an item of one."""
    return any(item is token for item in _flat(key))


def refs_in(key: tuple[Any, ...]) -> Iterator[Ref]:
    """The values that an op takes, in order."""
    return (item for item in _flat(key) if type(item) is Ref)


def _flat(key: tuple[Any, ...]) -> Iterator[Any]:
    for item in key:
        if type(item) is tuple:
            yield from _flat(item)
        else:
            yield item


def metas_in(outputs: Outputs) -> list[Meta]:
    """The metas of the tensors that an op gives, in order."""
    if outputs is None or type(outputs) is Meta:
        return [] if outputs is None else [outputs]
    return [meta for output in outputs for meta in metas_in(output)]
