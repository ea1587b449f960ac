"""Why a window was compiled: the first op that differs from what was recorded before."""

from __future__ import annotations

import linecache
from typing import Any

from xla_dynamo.backend import options
from xla_dynamo.backend.launch import Request

from .values import Ref
from .window import Number, Place, State, Window

_windows = 0


def request(window: Window) -> Request:
    """Name and reason of the program of the pending window, for reports."""
    global _windows
    _windows += 1
    return Request(
        f"{window.device} window {_windows}",
        reason(window),
        frozenset(),
        0,
        options.parse(None, None),
    )


def reason(window: Window) -> str:
    """The first difference between this window and the one recorded before it."""
    if window.diverged is None:
        if window.state.programs:
            return "the same ops, but other tensors are alive at the barrier"
        return "first compile"
    old, new = window.diverged
    return f"{difference(old, new)}, at {where(new.place)}"


def difference(old: State, new: State) -> str:
    """How the op of `new` differs from that of `old`."""
    if old.op is not new.op:
        return f"{old.op} became {new.op}"
    pairs = [(str(i), a, b) for i, (a, b) in enumerate(zip(old.args, new.args, strict=False))]
    pairs += [(name, old.kwargs.get(name), value) for name, value in new.kwargs.items()]
    names = [argument.name for argument in new.op.func._schema.arguments] if new.op else []
    for name, before, after in pairs:
        if show(before) != show(after):
            called = names[int(name)] if name.isdigit() and int(name) < len(names) else name
            return f"{new.op}: argument {called} was {show(before)}, is {show(after)}"
    return f"{new.op}: its operands changed"


def show(argument: Any) -> str:
    """An argument of a state as text: inputs with shape and dtype."""
    if type(argument) is Ref:
        return repr(argument.meta) if argument.meta is not None else repr(argument)
    if type(argument) is Number:
        return "a number"
    if isinstance(argument, (list, tuple)):
        return "[" + ", ".join(show(item) for item in argument) + "]"
    return repr(argument)


def where(place: Place | None) -> str:
    """file:line (code)."""
    if place is None:
        return "(no source line)"
    code, line = place
    return f"{code.co_filename}:{line} ({code_line(place)})"


def code_line(place: Place) -> str:
    """The text of the line."""
    return linecache.getline(place[0].co_filename, place[1]).strip()
