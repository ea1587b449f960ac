"""Why a trace was compiled: how it differs from the recorded trace that is most like it.

The traces of a device share a trie, so the op at which a trace differs from those before it is at
the last branch on its path.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from xla_dynamo.backend import options
from xla_dynamo.backend.executable.request import Request
from xla_dynamo.backend.passes.contract import WayIn
from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.recording import metrics as lazy_metrics
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values.describe import op_at, op_name, producers, show, where
from xla_dynamo.compat.values.trie import Number, State, refs_in
from xla_dynamo.compat.values.values import Ref

from . import recompile_warning, settings, spmd
from .recompile_warning import Difference

# Which results of a trace are alive at its barrier, and which inputs are given up.
Survivors = tuple[Sequence[int], Collection[int]]

_UNKNOWN = Difference("first", "not known")

_numbers = itertools.count(1)


def request(trace: Trace, survivors: Survivors, why: str | None = None) -> Request:
    """Name and reason of the program of the pending trace, for reports.

    why: the reason, if it is not that the trace is new.
    """
    if why is not None:
        return request_for(trace, why)
    difference = differs(trace, survivors)
    recompile_warning.warn_if_many(trace, difference, compile_options())
    return request_for(trace, difference.text)


def request_for(trace: Trace, text: str) -> Request:
    """Name and reason of a program for sizes of the pending trace, or larger ones."""
    name = f"{trace.device} trace {next(_numbers)}"
    return Request(name, text, frozenset(), 0, compile_options(), WayIn.LAZY)


def compile_options() -> options.Options:
    """The options that a trace compiled now gets."""
    given, precision = dict(settings.options()), settings.matmul_precision()
    if precision != options.matmul_precision():
        given["matmul_precision"] = precision
    return options.parse(given, None)


def reason(trace: Trace) -> str:
    """How the ops recorded so far differ from the traces before."""
    return differs(trace, None).text


@optional(_UNKNOWN)
def differs(trace: Trace, survivors: Survivors | None) -> Difference:
    """The first difference between the pending trace and the most similar one before it."""
    path = trace.state.path()
    if trace.state.programs:
        if survivors is None:
            return Difference("live", "the same ops as in a trace before")
        return _other_survivors(trace, path, survivors)
    if trace.state in lazy_metrics.launches:
        return Difference("options", "the options of the compiler changed")
    if trace.state.children:
        following = next(iter(trace.state.children.values()))
        return Difference(
            "barrier",
            f"the barrier came earlier: after {op_at(path[-1])}; before, {op_at(following)} "
            "followed",
        )
    for depth, state in reversed(list(enumerate(path))):
        parent = state.parent
        assert parent is not None
        others = [*parent.children.values(), *([parent.replaced] if parent.replaced else ())]
        old = _most_like(state, [other for other in others if other is not state])
        if old is not None and (old.op is state.op or (depth > 0 and not parent.programs)):
            return difference(old, state, path[: depth + 1])
        if parent.programs:
            return Difference(
                "barrier",
                f"the barrier came later: the trace went on after {op_at(path[depth - 1])} with "
                f"{op_at(state)}",
            )
        if old is not None:
            break
    return Difference("first", f"first compile of a trace that begins with {op_at(path[0])}")


def _most_like(new: State, others: Sequence[State]) -> State | None:
    """The state with the fewest other arguments; the latest of those."""

    def likeness(old: State) -> tuple[bool, bool, int]:
        same = sum(a == b for a, b in zip(old.key, new.key, strict=False))
        return old.op is new.op, old.location == new.location, same

    return max(reversed(others), key=likeness, default=None)


def difference(old: State, new: State, path: Sequence[State]) -> Difference:
    """How the op of `new`, the last of `path`, differs from that of `old`."""
    if old.op is not new.op:
        same_line = old.location == new.location
        before = op_name(old.op.func) if same_line else op_at(old)
        return Difference("op", f"{before} became {op_at(new)}")
    for name, before, after in _pairs(old, new):
        if type(before) is Ref and type(after) is Ref:
            return _operand(name, before, after, new, path)
        kind = "op" if type(before) is Number or type(after) is Number else "argument"
        if old.parent is new.parent and old.parent is not None and old.parent.replaced is old:
            text = f"{op_name(new.op.func)}: argument {name} was {show(before)}, and changes"
            return Difference("chosen", f"{text}: it is an input now, at {where(new.location)}")
        text = f"{op_name(new.op.func)}: argument {name} was {show(before)}, is {show(after)}"
        return Difference(kind, f"{text}{_dimension(before, after)} at {where(new.location)}")
    return Difference("op", f"{op_at(new)}: its operands changed")


def _pairs(old: State, new: State) -> Iterator[tuple[str, Any, Any]]:
    """(name, before, after) of each argument, or item of a list of tensors, that differs."""
    schema = new.op.func._schema.arguments
    names = [argument.name for argument in schema]
    known = dict(zip(names, old.args, strict=False)) | old.kwargs
    given = dict(zip(names, new.args, strict=False)) | new.kwargs
    for name in (name for name in names if name in known or name in given):
        before, after = known.get(name), given.get(name)
        pairs = [(name, before, after)]
        if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            items = list(zip(before, after, strict=True))
            if any(type(item) is Ref for item in after):
                pairs = [(f"{name}[{i}]", b, a) for i, (b, a) in enumerate(items)]
        for label, b, a in pairs:
            if show(b) != show(a):
                yield label, b, a


def _operand(name: str, before: Ref, after: Ref, new: State, path: Sequence[State]) -> Difference:
    if before.meta is not None and after.meta is not None and before.index == after.index:
        used = f"input {after.index} (first used by {op_at(new)})"
        change = _dimension(list(before.meta.shape), list(after.meta.shape))
        return Difference("shape", f"{used} was {before.meta}, is {after.meta}{change}")
    results = producers(path)
    was, now = _origin(before, results), _origin(after, results)
    return Difference(
        "op", f"{op_name(new.op.func)}: {name} was {was}, is {now} at {where(new.location)}"
    )


def _dimension(before: Any, after: Any) -> str:
    """The element in which two lists of numbers differ, if it is one; else ""."""
    if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
        return ""
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(changed) != 1 or len(before) == 1:
        return ""
    i = changed[0]
    return f" (dimension {i}: {before[i]} -> {after[i]})"


def _origin(ref: Ref, results: Sequence[State]) -> str:
    if ref.meta is not None:
        return f"input {ref.index} ({ref.meta})"
    known = ref.index < len(results)
    return f"the result of {op_at(results[ref.index])}" if known else f"result {ref.index}"


def _other_survivors(trace: Trace, path: Sequence[State], survivors: Survivors) -> Difference:
    """The ops are known, but other tensors are alive at the barrier, or split over devices."""
    live, dead = survivors

    def distance(known: Any) -> int:
        return len({*known[0]} ^ {*live}) + len({*known[1]} ^ {*dead})

    old_live, old_dead, *_ = min(reversed(list(trace.state.programs)), key=distance)
    if spmd.where() is None and (old_live, old_dead) == survivors:
        return Difference("first", "its program had made room for others")
    text = "the set of live tensors differs"
    if changed := sorted({*old_live} ^ {*live}):
        i = changed[0]
        now = "alive at the barrier, was not" if i in live else "dead at the barrier, was alive"
        text += f": the result of {op_at(producers(path)[i])} is {now}"
    elif changed := sorted({*old_dead} ^ {*dead}):
        i = changed[0]
        now = "given up, was kept" if i in dead else "kept, was given up"
        mine = trace.inputs[i]
        user = next(state for state in path if any(r is mine.ref for r in refs_in(state.key)))
        text += f": input {i} ({mine.meta}, first used by {op_at(user)}) is {now}"
    elif spmd.where() is not None:
        return Difference("sharding", "an input is split over the devices in another way")
    return Difference("live", text)
