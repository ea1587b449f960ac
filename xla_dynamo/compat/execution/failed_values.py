"""Tensors that have no value because an op raised, and the error that reading them raises.

Eager PyTorch raises at the op, and its result never exists. Here the op runs at a barrier, which
raises its error once; its result, and all that depends on it, raises that error when it is used.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xla_dynamo.backend.graph import error_origin
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values import describe
from xla_dynamo.compat.values.trie import State, metas_in, refs_in
from xla_dynamo.compat.values.values import Failure

from . import out_of_memory, program_cache

_PACKAGE = str(Path(__file__).parents[2]) + os.sep


@dataclass(frozen=True)
class Lost:
    """The ops that a pending trace cannot compute, and their values, by index."""

    states: frozenset[State] = frozenset()
    values: Mapping[int, Failure] = field(default_factory=dict)


NOTHING = Lost()


def lost_by(error: Exception, trace: Trace, live: Sequence[int], lost: Lost) -> Lost | None:
    """`lost` and what `error` adds to it, which the program for `live` without `lost` raised.

    None if no single op raised the error, or if another attempt may succeed.
    """
    culprit = error_origin.take(error)
    if culprit is None or out_of_memory.lacks_memory(error):
        return None
    if not isinstance(culprit, State):
        culprit = program_cache.state_of(trace, live, lost.states, culprit)
    if culprit in lost.states:
        return None
    where = describe.where(culprit.location)
    note = f"{describe.op_name(culprit.op.func)} at {where} raised this."
    failure = Failure(_without_frames(error), note)
    error.add_note(note)
    return _spread(failure, culprit, trace, lost)


def lost_with_collectives(error: Exception, trace: Trace) -> Lost:
    """All that depends on other replicas, with whom `error` kept a pending trace from running."""
    failure, lost = Failure(_without_frames(error), "The replicas did not come together."), NOTHING
    for state in trace.state.path():
        if state.op.collective:
            lost = _spread(failure, state, trace, lost)
    return lost


def _spread(failure: Failure, culprit: State, trace: Trace, lost: Lost) -> Lost:
    """`lost`, with the op `culprit` and all that depends on it."""
    states, values = set(lost.states), dict(lost.values)
    first = 0
    for state in trace.state.path():
        results = range(first, first := first + len(metas_in(state.outputs)))
        if state in states:
            continue
        operands = (ref.index for ref in refs_in(state.key) if ref.meta is None)
        if state is culprit or any(values.get(i) is failure for i in operands):
            states.add(state)
            values.update(dict.fromkeys(results, failure))
    return Lost(frozenset(states), values)


def mark(trace: Trace, lost: Lost) -> None:
    """From now on, whoever uses one of the lost values gets the error that lost it."""
    for number, failure in lost.values.items():
        value = trace.values[number]
        value.ref, value.stamp = failure, None


def release(error: Exception) -> None:
    """Empty this package's frames in a traceback: a notebook keeps its last one, and its arrays."""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            with suppress(RuntimeError):  # it still runs
                step.tb_frame.clear()
        step = step.tb_next


def _without_frames(error: Exception) -> Exception:
    """A copy of an error, which keeps no tensors alive."""
    try:
        made = copy.copy(error)
        if type(made) is type(error) and str(made) == str(error):
            made.__dict__["__notes__"] = list(getattr(error, "__notes__", ()))
            return made
    except Exception:  # its __init__ takes other arguments than it keeps
        pass
    return RuntimeError(str(error))
