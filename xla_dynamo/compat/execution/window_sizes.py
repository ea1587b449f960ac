"""A pending trace as its structure, and the numbers in which windows of one structure differ.

Numbers are the sizes of inputs and results, and the integers among the arguments of ops: what a
view is given, how long a slice is, where it begins. Two traces of one structure and of the same
numbers are the same trace.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xla_dynamo.compat.recording.trace import RESTRIDE, Trace
from xla_dynamo.compat.values import selected
from xla_dynamo.compat.values.trie import State, metas_in, numbers_in
from xla_dynamo.compat.values.values import Meta, Ref


@dataclass(frozen=True)
class Window:
    """A pending trace.

    structure: ops, dtypes, ranks, arguments that are no integers; and which integers are below 2:
        they number dimensions, and ops treat sizes of 0 and 1 in their own way.
    sizes: of each input; then of each op the other integers that it takes, those that only select,
        and the sizes of its results.
    chosen: the positions there of what only selects.
    states: the ops; integers that only select are inputs of all of them.
    scalars: which of the trace's numbers each number of `states` is; beyond the last, `constants`.
    """

    structure: Hashable
    sizes: tuple[int, ...]
    chosen: tuple[int, ...] = field(compare=False)
    states: tuple[State, ...] = field(compare=False)
    scalars: tuple[int, ...] = field(compare=False)
    constants: tuple[int, ...] = field(compare=False)

    def differs_from(self, sizes: Sequence[int]) -> bool:
        """Whether a window of this structure has other sizes, whatever it selects."""
        mine, others = list(self.sizes), list(sizes)
        for position in self.chosen:
            mine[position] = others[position] = 0
        return mine != others


def window_of(trace: Trace, live: Sequence[int], dead: Sequence[int]) -> Window:
    """The pending trace as a window."""
    sizes: list[int] = []
    chosen: list[int] = []
    scalars: list[int] = []
    constants: list[int] = []
    states: list[State] = []
    parts: list[Hashable] = [tuple(live), tuple(dead)]
    parts += [_shape(value.meta, sizes) for value in trace.inputs]
    for state in trace.state.path():
        same, numbers = _with_choices(state, trace)
        arguments = tuple([_argument(item, sizes) for item in _arguments_of(same)])
        chosen.extend(range(len(sizes), len(sizes) + len(numbers)))
        sizes.extend(numbers)
        if same is state:
            given = numbers_in(state.key)
            scalars.extend(range(state.scalars, state.scalars + given))
        else:
            first = len(trace.scalars) + len(constants)
            scalars.extend(range(first, first + len(numbers)))
            constants.extend(numbers)
        states.append(replace(same, scalars=len(scalars) - numbers_in(same.key)))
        outputs = tuple([_shape(meta, sizes) for meta in metas_in(state.outputs)])
        parts.append((state.op, same.positional, arguments, outputs))
    found = tuple(chosen), tuple(states), tuple(scalars), tuple(constants)
    return Window(tuple(parts), tuple(sizes), *found)


def _with_choices(state: State, trace: Trace) -> tuple[State, Sequence[int]]:
    """A state whose integers that only select are inputs, and these integers."""
    if selected.chooses(state):
        count = numbers_in(state.key)
        return state, trace.scalars[state.scalars : state.scalars + count]
    choice = selected.choice(state.key, state.positional, trace.meta_of)
    if choice is None:
        return state, ()
    return replace(state, key=choice.key, positional=choice.positional), choice.numbers


def with_sizes(state: State, sizes: Iterator[Any], choose: Callable[[], Any]) -> State:
    """A state whose op takes the next of `sizes` in the place of its integers.

    choose: gives what stands for the next integer that only selects, None for one that is an input.
    """

    def filled(item: Any) -> Any:
        if type(item) is tuple:
            return tuple([filled(part) for part in item])
        return next(sizes) if type(item) is int and item > 1 else item

    given = tuple([filled(item) for item in _arguments_of(state)])
    key = (*state.key[:1], *given, *state.key[1 + len(given) :])
    if selected.chooses(state):
        numbers = [choose() for _ in range(numbers_in(state.key))]
        if None not in numbers:
            key = selected.chosen(key, numbers)
    return replace(state, key=key)


def _arguments_of(state: State) -> tuple[Any, ...]:
    """What stands for the arguments of an op; arrays have no strides, which an op may be given."""
    return state.key[1:2] if state.op is RESTRIDE else state.key[1:]


def _argument(item: Any, sizes: list[int]) -> Hashable:
    kind = type(item)
    if kind is int and item > 1:
        sizes.append(item)
        return int
    if kind is Ref:
        return "input" if item.meta else "result", item.index
    if kind is tuple:
        return tuple([_argument(part, sizes) for part in item])
    return item


def _shape(of: Meta, sizes: list[int]) -> Hashable:
    sizes.extend(of.shape)
    return of.dtype, tuple([size if size < 2 else None for size in of.shape])
