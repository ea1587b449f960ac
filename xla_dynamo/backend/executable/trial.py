"""A program that may end the compiler's process is first compiled in another one.

libtpu aborts on some programs, and nothing in this process could stop it. Those that are known are
declined by name (`lowering.absent`). What has ops that no program compiled for a TPU is known to
have had is tried first, in a process that may die. The verdict is kept on disk.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Graph, Node

from xla_dynamo import versions
from xla_dynamo.backend import metrics
from xla_dynamo.backend.lowering import proved
from xla_dynamo.backend.lowering.lower import Lowered
from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.runtime import cache, trial_process
from xla_dynamo.backend.runtime.trial_process import Verdict
from xla_dynamo.bookkeeping import optional
from xla_dynamo.errors import CompileError

PLATFORM = "tpu"
_NAMED = 4  # ops
_REMEDY = (
    "Compute this part in another dtype or by other ops, or outside of the compiled function; or "
    'options={"trial_compile": "never"}, and the compiler ends this process. Please report it, '
    "with this message."
)


def survive(
    lowered: Lowered,
    graph: Graph,
    topology: str | None,
    options: Options,
    overrides: Mapping[str, Any],
    name: str,
) -> None:
    """Try a program in another process, if the options ask for it, unless that was done before.

    graph: what it was lowered of. topology: what it is compiled for; None is not tried. name: of
        the program, for the error.

    Raises:
        CompileError: the compiler ends its process on this program.
    """
    suspects = _suspects(graph, options)
    if topology is None or suspects is None:
        return
    key = _key(lowered, topology, overrides)
    kept = _kept(key) if options.disk_cache else None
    verdict = kept or trial_process.compile_apart(lowered.bytecode(), topology, overrides)
    metrics.count("trial_compiles.known" if kept else "trial_compiles")
    if verdict is None:
        return
    if kept is None and options.disk_cache:
        _keep(key, verdict)
    if verdict.signal:
        raise CompileError(
            f"libtpu ends the process that compiles {name} for {topology} ({verdict.signal}), as "
            f"was tried in another process:\n{verdict.words}\n{_ops(suspects)}{_REMEDY}"
        )


def _suspects(graph: Graph, options: Options) -> Sequence[Node] | None:
    """The ops that may be at fault; None where the program is not tried."""
    if options.trial_compile == "never":
        return None
    found = proved.unproved(graph, PLATFORM)
    return found if found or options.trial_compile == "always" else None


def _ops(suspects: Sequence[Node]) -> str:
    told = list(dict.fromkeys(f"{proved.name(n)} at {location_of(n)}" for n in suspects))
    if not told:
        return ""
    listed = ", ".join(told[:_NAMED]) + (", ..." if len(told) > _NAMED else "")
    return f"Ops that are not known to compile for a TPU: {listed}. "


def _key(lowered: Lowered, topology: str, overrides: Mapping[str, Any]) -> str:
    compilers = repr([versions.installed(package) for package in ("libtpu", "jaxlib")])
    told = topology, compilers, repr(sorted(overrides.items()))
    return cache.key_of(["trial", lowered.canonical(), *told])


@optional(None)
def _kept(key: str) -> Verdict | None:
    """The verdict of an earlier trial, if there was one."""
    disk = cache.configured()
    entry = None if disk is None else disk.get(key)
    return None if entry is None else Verdict(**json.loads(entry))


@optional(None)
def _keep(key: str, verdict: Verdict) -> None:
    disk = cache.configured()
    if disk is not None:
        disk.put(key, json.dumps(dataclasses.asdict(verdict)).encode())
