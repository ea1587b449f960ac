"""What a trace does at an op that it never recorded at this place: the trie grows by a state.

The op's shapes are inferred, once; integers that only select become inputs where they are seen to
change (values/selected.py); and a trace that has grown too long ends before the op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from xla_dynamo.compat.values import selected
from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.trie import Outputs, State, numbers_in
from xla_dynamo.compat.values.values import Meta, Ref, Value

from . import shape_inference
from .trace_bounds import look, policy


class Growing(Protocol):
    """What of a trace (recording/trace.py) is read and changed here."""

    state: State
    twin: State | None
    values: list[Value]
    scalars: list[Any]
    bound: int
    follows: bool
    ends: set[State]

    def meta_of(self, ref: Ref) -> Meta:
        """The meta of what a key refers to."""
        ...

    def add_state(self, key: Any, positional: int, scalars: int, outputs: Outputs) -> State:
        """What follows the state of now by an op that was never recorded there."""
        ...


class Again(Exception):
    """The op is to be recorded again, after `first` is called; the trace is as before.

    waits: a value was put off: perhaps the host computes the op.
    """

    def __init__(self, first: Callable[[], object], waits: bool = False) -> None:
        super().__init__()
        self.first = first
        self.waits = waits


def grow(trace: Growing, key: tuple[Any, ...], op: Op, args: Any, kwargs: Any) -> Any:
    """A new state for an op that was never recorded after this one.

    Or a known state, of the same op with another integer that only selects.

    Raises:
        Again: the trace ends before the op.
    """
    choice, twin = selected.choice(key, len(args), trace.meta_of), None
    if choice is not None:
        known = trace.state.children.get(choice.key)
        if known is not None:
            trace.scalars.extend(choice.numbers)
            return known
        twin = selected.alike((trace.state, trace.twin), choice, trace.meta_of)
    if len(trace.values) >= trace.bound:
        _end_if_full(trace, op)
    outputs = shape_inference.infer(_described(key, trace.meta_of), op, args, kwargs)
    if outputs is shape_inference.EAGER:
        return outputs
    if choice is not None and twin is not None and twin.key != key:
        return _generalize(trace, choice, outputs, twin)
    return trace.add_state(key, len(args), len(trace.scalars) - numbers_in(key), outputs)


def _generalize(trace: Growing, choice: selected.Choice, outputs: Outputs, twin: State) -> State:
    """A new state for an op whose integers are inputs now; it replaces those of before."""
    selected.forget(trace.state, choice, trace.meta_of)
    scalars = len(trace.scalars) - numbers_in(choice.key) + len(choice.numbers)
    trace.scalars.extend(choice.numbers)
    made = trace.add_state(choice.key, choice.positional, scalars, outputs)
    trace.twin = twin
    return made


def _end_if_full(trace: Growing, op: Op) -> None:
    """Look at the trace before `op` is recorded.

    Raises:
        Again: it ends here.
    """
    if trace.state not in trace.ends:
        trace.bound = look(trace.state.path(), op, len(trace.values), trace.follows)
        if trace.bound > len(trace.values):
            return
        trace.ends.add(trace.state)
    raise Again(functools.partial(policy.when_full, trace))


def _described(key: tuple[Any, ...], meta_of: Callable[[Ref], Meta]) -> tuple[Any, ...]:
    """A key that depends on metas instead of names: equal for ops of the same signature."""

    def signature_of(item: Any) -> Any:
        if type(item) is Ref:
            return meta_of(item)
        if type(item) is tuple:
            return tuple([signature_of(part) for part in item])
        return item

    return tuple([signature_of(item) for item in key])
