"""Executables that an earlier process left on disk, by a key that is known before lowering.

`compile` keeps executables by their StableHLO. To have that, ops must be decomposed, rules traced
and modules linked: most of a second process's first step. Here a second entry, under a key made of
what the StableHLO is made from, leads to the executable. Nothing is unpickled: it is JSON.

The key: the caller's text of its graph; options, platform, device and XLA's flags; the versions of
torch, torch-mlir, jax and jaxlib; JAX's own settings; this package's files, by time and size. It
leaves out what a program does to other packages: decompositions that it registers with PyTorch.
Where rules of another package are registered, or stages are to be shown, there is no key.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import Graph

from xla_dynamo import versions
from xla_dynamo.backend import jax_adapter, metrics
from xla_dynamo.backend.lowering.registry import RULES
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.contract import target_of
from xla_dynamo.backend.runtime import cache, pjrt
from xla_dynamo.bookkeeping import optional
from xla_dynamo.config import config

from . import parts
from .request import Request

_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Known:
    """An executable on disk."""

    executable: str
    inputs: pjrt.Signature
    outputs: pjrt.Signature
    shapes: tuple[str, ...]
    nodes: int
    aliases: int


@dataclass(frozen=True)
class Entry:
    """What a key leads to: executables on disk, and the details that the way in kept with them."""

    programs: tuple[Known, ...]
    details: Any


@optional(None)
def key_of(texts: Sequence[str], options: Options, device: pjrt.Device) -> str | None:
    """The key of a program; None where programs are not kept, or no key tells all of them apart.

    texts: the text of the graph, and of all that decides how it is lowered beside the options.
    """
    kept = options.disk_cache and config().cache_dir is not None
    if not kept or metrics.wants_stages() or _foreign_rules():
        return None
    surroundings = (_code(), jax_adapter.settings(), str(torch.get_default_dtype()))
    target = target_of(options, pjrt.platform(device))
    of_program = (repr(options), repr(target), pjrt.describe(device))
    return cache.key_of(["known", *texts, *of_program, *surroundings])


def _foreign_rules() -> bool:
    """Whether another package has registered rules, which no key would tell apart."""
    own = (__name__.partition(".")[0], "jax", "jaxlib")  # functions of JAX are rules as they are
    return any(_module_of(rule.function).partition(".")[0] not in own for rule in RULES.values())


def _module_of(function: Any) -> str:
    for inner in ("plain", "func"):  # of PerPlatform, of functools.partial
        function = getattr(function, inner, function)
    return getattr(function, "__module__", None) or ""


@functools.cache
def _code() -> str:
    """What programs are lowered by: this package, and the packages under it."""
    files = [(path, path.stat()) for path in sorted(_PACKAGE.rglob("*.py"))]
    own = [(str(path.relative_to(_PACKAGE)), of.st_mtime_ns, of.st_size) for path, of in files]
    return repr(([versions.installed(package) for package in versions.TESTED], own))


@optional(None)
def find(key: str) -> Entry | None:
    """What is known of a program, or of several that run in turn, if anything is."""
    entry = _disk().get(key)
    if entry is None:
        return None
    told = json.loads(entry)
    return Entry(tuple(map(_known, told["programs"])), told["details"])


def _known(told: dict[str, Any]) -> Known:
    signatures = {name: _signature(told[name]) for name in ("inputs", "outputs")}
    return Known(**{**told, **signatures, "shapes": tuple(told["shapes"])})


@optional(None)
def load(
    known: Known, request: Request, device: pjrt.Device, location: str, graph: Graph | None = None
) -> pjrt.Executable | None:
    """The executable, unless it is gone.

    location: the user's line of the first op, for the record. graph: what it is of, for a report.
    """
    start = time.perf_counter()
    data = _disk().get(known.executable)
    if data is None:
        return None
    overrides = request.options.xla_overrides(pjrt.platform(device))
    name, reason = request.name, request.reason
    executable = pjrt.deserialize(data, device, known.inputs, known.outputs, overrides, name)
    executable.aliases = known.aliases
    of = known.inputs, known.outputs, known.shapes, known.nodes
    executable.origin = pjrt.Origin(known.executable, *of)
    seconds = 0.0, time.perf_counter() - start
    record = metrics.CompileRecord(
        name, known.shapes, known.nodes, *seconds, True, reason, location
    )
    parts.tell(record, request.parts, executable, graph)
    return executable


@optional(None)
def remember(key: str, executables: Sequence[pjrt.Executable], details: Any) -> None:
    """Keep what leads from a key to executables, if they are on disk; details: JSON."""
    if all(executable.origin is not None for executable in executables):
        told = {"programs": list(map(_told, executables)), "details": details}
        _disk().put(key, json.dumps(told).encode())


def _told(executable: pjrt.Executable) -> dict[str, Any]:
    origin = executable.origin
    assert origin is not None
    signatures = {"inputs": _text(origin.inputs), "outputs": _text(origin.outputs)}
    return {**dataclasses.asdict(origin), **signatures, "aliases": executable.aliases}


def _disk() -> cache.DiskCache:
    found = cache.configured()
    assert found is not None
    return found


def _text(signature: pjrt.Signature) -> list[Any]:
    return [(list(shape), dtype.name) for shape, dtype in signature]


def _signature(text: list[Any]) -> pjrt.Signature:
    return [(tuple(shape), np.dtype(name)) for shape, name in text]
