"""Graphs that were split at kernels, as an earlier process left them on disk.

An entry of `known` leads to their programs; its details say how each is called, and what is called
between (turns). So no graph is split, and no pass is run.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from xla_dynamo.backend.graph import plain
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.bookkeeping import optional

from . import known, segments, torch_kernels, turns
from .host_launch import HostLaunch, Launched
from .output_plan import Output
from .parts import Parts
from .request import Request
from .turns import Name, Turns

Where = Callable[[int | None], str]  # the user's line of a node, by its number

_COPIES = {"detach": torch.Tensor.detach, "clone": torch.clone}
_NOTHING = Output()


def to_json(of: Turns) -> tuple[dict[str, Any], list[pjrt.Executable]]:
    """Turns without their programs, and these.

    Raises:
        plain.NotPlain: a part runs in eager, say.
    """
    launches: list[Launched] = []
    for launch in of.launches:
        if not isinstance(launch, Launched):
            raise plain.NotPlain("a part that is no program")
        launches.append(launch)
    programs = list(dict.fromkeys(each.program for each in launches if each.program is not None))
    place = {program: i for i, program in enumerate(programs)}
    told = [
        [None if each.program is None else place[each.program], _launch_to_json(each.launch)]
        for each in launches
    ]
    return {"calls": turns.to_json(of.graph, of.names), "launches": told}, programs


def of_json(told: dict[str, Any], programs: Sequence[pjrt.Executable], where: Where) -> Turns:
    """The inverse of `to_json`."""
    device = pjrt.device("cpu")
    launches = [
        Launched(_launch_of_json(launch), None if at is None else programs[at], device)
        for at, launch in told["launches"]
    ]

    def function_of(name: Name) -> Callable[..., Any]:
        return _MAKERS[name[0]](name, launches, where)

    return Turns(turns.graph_of(told["calls"], function_of), {}, launches)


_MAKERS: dict[str, Callable[[Name, Sequence[Launched], Where], Callable[..., Any]]] = {
    "item": lambda name, launches, where: operator.getitem,
    "copy": lambda name, launches, where: _COPIES[name[1]],
    "program": lambda name, launches, where: segments.as_function(launches[name[1]].run),
    "kernel": lambda name, launches, where: torch_kernels.of_name(name, where(name[3])),
    "strides": lambda name, launches, where: segments.restrided(
        torch.empty_strided(*name[1:], device="meta")
    ),
}


def _launch_to_json(launch: HostLaunch) -> Any:
    fields = {field.name: getattr(launch, field.name) for field in dataclasses.fields(launch)}
    return plain.to_json({**fields, "planned": list(map(_changed, launch.planned))})


def _changed(output: Output) -> dict[str, Any]:
    fields = [(field.name, getattr(output, field.name)) for field in dataclasses.fields(output)]
    return {name: value for name, value in fields if value != getattr(_NOTHING, name)}


def _launch_of_json(told: Any) -> HostLaunch:
    fields = plain.of_json(told)
    planned = tuple([Output(**output) for output in fields["planned"]])
    return HostLaunch(**{**fields, "planned": planned})


@dataclasses.dataclass(frozen=True)
class Found:
    """Programs that were loaded, and what they are recorded as."""

    programs: Sequence[pjrt.Executable]
    parts: Parts


@optional(None)
def load(
    entry: known.Entry, request: Request, devices: Sequence[pjrt.Device], location: str
) -> Found | None:
    """The programs of an entry, each for its device; None if one is gone."""
    parts = Parts()
    request = replace(request, parts=parts)

    def loaded(number: int) -> pjrt.Executable | None:
        part = replace(request, name=f"{request.name} part {number}")
        with parts.others_meanwhile():
            return known.load(entry.programs[number], part, devices[number], location)

    programs = parts.compiled(range(len(entry.programs)), loaded)
    found = [program for program in programs if program is not None]
    return Found(found, parts) if len(found) == len(programs) else None
