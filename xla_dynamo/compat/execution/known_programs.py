"""Programs of earlier processes, found by the path of a trace: no graph is built of it.

The text of a path names each op with its arguments, and the shapes, dtypes and strides of inputs
and results; with the options and what backend/executable/known.py adds, that is all that a program
is made from. A path has no text where an op is not one of PyTorch's or this package's own, or has
an argument of another kind than numbers, dtypes and the like: a function, say.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph

from xla_dynamo.backend.graph import text
from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values import storage
from xla_dynamo.compat.values.trie import State, Token
from xla_dynamo.compat.values.values import Meta, Ref
from xla_dynamo.lazily import lazily

from .program import Launch, Program

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import array_parts, known
    from xla_dynamo.backend.executable.request import Request
    from xla_dynamo.backend.options import Options
    from xla_dynamo.backend.runtime import pjrt
else:
    array_parts = lazily("xla_dynamo.backend.executable.array_parts", globals())
    known = lazily("xla_dynamo.backend.executable.known", globals())

_PLAIN = (int, bool, str, torch.dtype, torch.layout, torch.memory_format)


class _NoText(Exception):
    """Something in a path has no text that says all of it."""


@optional(None)
def key_of(
    trace: Trace,
    live: Sequence[int],
    dead: Sequence[int],
    options: Options,
    device: pjrt.Device,
) -> str | None:
    """The key on disk of the pending trace's program; None if it has none."""
    if trace.state.collective:
        return None
    try:
        path = "\n".join(map(_text_of, trace.state.path()))
    except _NoText:
        return None
    # Where it is the only device, PyTorch's kernels run between programs: not all is on disk there.
    alone = str(device.client.device_count() == 1)
    return known.key_of([path, *_around(trace, live, dead), alone], options, device)


def places(path: Sequence[State], graph: Graph) -> dict[int, int]:
    """By the number of a node of a trace's graph: which op of the path it is part of."""
    at = {state: i for i, state in enumerate(path)}
    states = ((node.meta["number"], node.meta.get("state")) for node in graph.nodes)
    return {number: at[state] for number, state in states if state in at}


@optional(None)
def remember(key: str, run: Any, program: Program, places: Mapping[int, int]) -> None:
    """Keep a program on disk, if all of it is there: one executable, or several in turn."""
    turns = executables = None
    if isinstance(run, Launch):
        executables = [run.executable]
    elif isinstance(run, array_parts.InTurn):
        turns, executables = array_parts.to_json(run) or (None, None)
    if executables is not None:
        listed = [] if turns is None else list(places.items())
        details = {"program": program.as_json(), "turns": turns, "places": listed}
        known.remember(key, executables, details)


def identity(entry: known.Entry) -> Hashable:
    """Equal for entries that run the same."""
    programs = tuple(program.executable for program in entry.programs)
    return programs, json.dumps(entry.details["turns"])


def load(
    entry: known.Entry, request: Request, device: pjrt.Device, path: Sequence[State]
) -> pjrt.Executable | array_parts.InTurn | None:
    """What an entry leads to, for a trace of this path; None if some of it is gone."""
    places, turns = dict(entry.details["places"]), entry.details["turns"]

    def line(number: int | None) -> str:
        return _line(path[places[number]] if number in places else None)

    location = _line(path[0])
    if turns is None:
        return known.load(entry.programs[0], request, device, location)
    return array_parts.from_disk(entry, turns, request, device, line, location)


def _line(state: State | None) -> str:
    at = None if state is None else state.location
    return "(no source line)" if at is None else f"{at.file}:{at.line}"


def text_of(trace: Trace, live: Sequence[int], dead: Sequence[int]) -> str:
    """The pending trace's program, as text by which processes can compare theirs.

    Of an argument that has no text, such as a function, nothing is said.
    """
    lines = []
    for state in trace.state.path():
        try:
            lines.append(_text_of(state))
        except _NoText:
            lines.append(f"{state.op.func} -> {_outputs(state.outputs)}")
    return "\n".join([*lines, *_around(trace, live, dead)])


def _around(trace: Trace, live: Sequence[int], dead: Sequence[int]) -> list[str]:
    """What of a program its ops do not say."""
    inputs = [_meta(value.meta) for value in trace.inputs]
    stored = repr(sorted(map(str, storage.overrides().items())))
    return [repr(inputs), repr(tuple(live)), repr(tuple(dead)), stored]


def _text_of(state: State) -> str:
    func = state.op.func
    if not (isinstance(func, torch._ops.OpOverload) and text.is_of_every_process(func)):
        raise _NoText
    arguments = " ".join(map(_text, state.key[1:]))
    return f"{func} {state.positional} {state.scalars} {arguments} -> {_outputs(state.outputs)}"


def _text(item: Any) -> str:
    kind = type(item)
    if kind is Ref:
        return repr(item)
    if kind is Token:
        return f"<{item.number} {type(item.value).__name__} {item.value!r}>"
    if kind is tuple:
        return f"({','.join(map(_text, item))})"
    if item is None or kind in _PLAIN:
        return repr(item)
    if kind is torch.device:
        return item.type
    raise _NoText


def _outputs(outputs: Any) -> str:
    if outputs is None or type(outputs) is Meta:
        return "None" if outputs is None else _meta(outputs)
    return f"[{', '.join(map(_outputs, outputs))}]"


def _meta(of: Meta) -> str:
    return f"{of.dtype}{tuple(of.shape)}{of.strides}"
