"""SPMD mode: xla:0 is all devices, and each program is partitioned over them.

What is uploaded waits on the host (`Held`) until an op needs it, on every device, or it is marked
with a sharding: then each device gets its part. A program is compiled for the shardings that its
arguments have; tensors that were marked, and parameters that it updates, keep theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xla_dynamo.compat.recording import devices, metrics, replicas
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values import environment, torch_private
from xla_dynamo.compat.values.marks import marks
from xla_dynamo.compat.values.values import Leaf, Ref, Value
from xla_dynamo.lazily import lazily

from . import auto_sharding

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import joint, partitioned
    from xla_dynamo.backend.runtime import job, partitions, pjrt, transfers
    from xla_dynamo.backend.runtime.shardings import Sharding
else:
    job = lazily("xla_dynamo.backend.runtime.job", globals())
    joint = lazily("xla_dynamo.backend.executable.joint", globals())
    partitioned = lazily("xla_dynamo.backend.executable.partitioned", globals())
    partitions = lazily("xla_dynamo.backend.runtime.partitions", globals())
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())
    transfers = lazily("xla_dynamo.backend.runtime.transfers", globals())

_on: partitions.Partitions | None = None


def where() -> partitions.Partitions | None:
    """All devices, in SPMD mode over several; else None."""
    return _on


def begin() -> None:
    """Enter SPMD mode, for the rest of the process; over one device, it is no other mode."""
    global _on
    everywhere = devices.everywhere()
    if _on is None and len(everywhere) > 1:
        devices.merge()
        devices.set_default(0)
        replicas.leave_process()  # there is one program, and so one replica
        _on = partitions.Partitions(everywhere)


@environment.at_first_use
def _begin_if_asked() -> None:
    if environment.in_spmd():
        begin()
        if os.environ.get("XLA_AUTO_SPMD", "").lower() in ("1", "true"):
            auto_sharding.begin()


def key(trace: Trace, live: Sequence[int], dead: Sequence[int]) -> Any:
    """By what a state of the trie knows its programs: what lives, what dies, how it is split."""
    if _on is None:
        return live, dead
    for value in trace.inputs:
        if partitions.sharding_of(value.array) is None:  # of before SPMD mode began
            value.array = transfers.upload(transfers.download(value.array), _on)
    return live, dead, tuple([value.array.sharding for value in trace.inputs])


def of_program(
    trace: Trace, inputs: Sequence[int], vectors: int, seeds: int, live: Sequence[int]
) -> partitions.Partitions:
    """The devices with the shardings of a program's arguments, and those that its results keep.

    inputs: which of the trace's it takes; vectors: how many vectors of numbers; seeds: how many;
    live: which of the trace's values it gives.
    """
    assert _on is not None
    given = [_of(trace.inputs[i].array) for i in inputs]
    numbers = [_on.replicated(1)] * vectors + [_on.replicated(2)] * bool(seeds)
    marked = _marked(trace)
    results = tuple([marked.get(i) for i in live])
    return partitions.Partitions(_on.devices, (*given, *numbers), results)


def together(key: Hashable, on: Any, compile: Callable[[], Any]) -> Any:
    """What `compile` gives for a program that is looked up by `key`: see joint.together."""
    if auto_sharding.is_on():
        metrics.count("CompileWithAutoSharding")
    if _on is None or not isinstance(on, partitions.Partitions):
        return compile()
    text = repr((key[1:], partitioned.attributes(on)))  # type: ignore[index]

    def run() -> Callable[..., Any]:
        made = compile()
        if isinstance(made, pjrt.Executable):
            return made
        return lambda *arrays: made(list(arrays))

    return joint.together(text, run) if job.current() is not None else compile()


def _of(array: Any) -> Sharding:
    found = partitions.sharding_of(array)
    assert found is not None
    return found


def _marked(trace: Trace) -> dict[int, Sharding]:
    """The shardings of the pending values that marked tensors have."""
    return {
        value.ref.index: sharding
        for value, sharding in _marked_values()
        if value.array is None and value.stamp is trace.stamp and type(value.ref) is Ref
    }


def mark_of(value: Value) -> Sharding | None:
    """The sharding of a marked tensor whose value this is, by a write to it say."""
    return next((sharding for marked, sharding in _marked_values() if marked is value), None)


def _marked_values() -> Iterator[tuple[Value, Sharding]]:
    for tensor, mark in list(marks.items()):
        leaf = torch_private.unwrapped(tensor) if torch_private.is_functional(tensor) else None
        if type(leaf) is Leaf:
            yield leaf.value, mark.sharding(tensor.dim())
