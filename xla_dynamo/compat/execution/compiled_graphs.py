"""Graphs of torch.compile on tensors of the device: arrays go in and come out, nothing is copied.

To the metrics, and to those who are told of programs, they are programs like those of traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from xla_dynamo import interrupts
from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.compat.recording import metrics, pending, replicas
from xla_dynamo.compat.recording.trace import trace_of
from xla_dynamo.compat.values import functionalization, torch_private
from xla_dynamo.compat.values.storage import stored
from xla_dynamo.compat.values.values import Array, Value, leaf_of, meta, tensor
from xla_dynamo.lazily import lazily

from .sync import HELD, cut, device_of, download, materialize, note_launch, references, upload

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import joint
    from xla_dynamo.backend.runtime import job, pjrt, replica_arrays, transfers
else:
    replica_arrays = lazily("xla_dynamo.backend.runtime.replica_arrays", globals())
    joint = lazily("xla_dynamo.backend.executable.joint", globals())
    job = lazily("xla_dynamo.backend.runtime.job", globals())
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())
    transfers = lazily("xla_dynamo.backend.runtime.transfers", globals())

Listener = Callable[["pjrt.Executable"], None]
# Are told of every graph that is compiled, and of every launch of one.
on_compile: list[Listener] = []
on_launch: list[Listener] = []


def compiled(compile: Callable[[], pjrt.Executable], device: torch.device) -> pjrt.Executable:
    """The program that `compile` makes for `device`, after a barrier there.

    Raises:
        What the barrier or `compile` raises.
    """
    cut(pending.trace(device))  # most of what is pending is an argument
    with metrics.timed("CompileTime"):
        executable = compile()
    metrics.compiled(executable.aliases)
    for listener in on_compile:
        listener(executable)
    return executable


def of_replicas(
    device: torch.device,
    lines: Sequence[str],
    text: str,
    compile: joint.Compile,
    aliases: int,
) -> joint.Run:
    """See `resident.Residency`.

    Raises:
        NotAvailable: the device is no replica's.
    """
    member = replicas.of_device(device.index)
    if member is None:
        return joint.JointProgram(job.of_collectives(), lines, compile, text)
    return member.world.graph(member.rank, lines, text, compile, aliases)


def launch(
    executable: pjrt.Executable,
    tensors: Sequence[torch.Tensor],
    device: torch.device,
    aliases: Mapping[int, int],
) -> list[torch.Tensor]:
    """Run a program on tensors of `device`, or of the CPU; its results are new tensors there.

    aliases: by argument, the result that takes over its memory, and that the caller then copies
        into it, or would: such a result may be the argument, which has its new value.
    """
    arrays = _arrays_of(tensors, device)
    if aliases:
        results, updated = _donating(executable, tensors, arrays, aliases)
    else:
        results, updated = executable(*arrays), {}
    made = _tensors_of(results, device, updated)
    note_launch(device.index, results)
    timed_by = _timed_by(results, updated)
    metrics.graph_launched(device.index, len(results), timed_by, id(executable))
    for listener in on_launch:
        listener(executable)
    return made


def _timed_by(results: Sequence[Array], updated: Mapping[int, torch.Tensor]) -> Array | None:
    """A small result, which the next launch does not give away while it is waited for."""
    ends = {0, len(results) - 1}
    kept = [results[i] for i in ends - updated.keys()] if results else []
    if kept:
        return min(kept, key=lambda array: array.size)
    return replica_arrays.twin(results[-1]) if results else None


def _donating(
    executable: pjrt.Executable,
    tensors: Sequence[torch.Tensor],
    arrays: list[Array],
    aliases: Mapping[int, int],
) -> tuple[Sequence[Array], dict[int, torch.Tensor]]:
    """Run a program that takes over memory; what another tensor has as well is copied before.

    Gives its results, and by their positions the tensors that have them already.
    """
    leaves = {i: leaf for i in aliases if (leaf := leaf_of(tensors[i])) is not None}
    given = {i: leaf.value for i, leaf in leaves.items() if leaf.value.array is arrays[i]}
    values, held = list(given.values()), [value.array for value in given.values()]
    counts = zip(list(given), references(values), references(held), strict=True)
    for i, of_value, of_array in counts:
        if of_value > _VALUE + _leaves(tensors[i]) or of_array > _ARRAY:
            del given[i]
            arrays[i] = transfers.copied(arrays[i])
    with interrupts.deferred():
        results = executable(*arrays)
        for i, value in given.items():
            value.array = results[aliases[i]]
    # A copy into a parameter, of itself, would be differentiated.
    return results, {
        aliases[i]: tensor(value) if (own := tensors[i]).requires_grad else own
        for i, value in given.items()
    }


# Who holds a value but for leaves, and an array, beside the list that is counted: the dictionary;
# the value and the list of arguments.
_VALUE, _ARRAY = HELD + 1, HELD + 2


def _leaves(tensor: torch.Tensor) -> int:
    """How many leaves of one value a tensor has: one of its own and, if it is an alias, its base's.

    Of other views the base has another value: that of all memory.
    """
    if torch_private.is_base(tensor):
        return 1
    return 2 if set(functionalization.view_names(tensor)) <= _ALIASES else 0


_ALIASES = {"detach_ViewMeta", "alias_ViewMeta"}


def _arrays_of(tensors: Sequence[torch.Tensor], device: torch.device) -> list[Array]:
    """The arrays of tensors that enter a graph on `device`, after a barrier if need be."""
    arrays, waits = [], False
    for each in tensors:
        leaf = leaf_of(each)
        value = upload(pending.trace(device), each) if leaf is None else leaf.value
        if stored(value.meta.dtype) is not value.meta.dtype:  # compiled graphs have no such switch
            arrays.append(transfers.upload(download(value), device_of(trace_of(value))))
        else:
            waits = waits or value.array is None
            arrays.append(materialize(value))
    metrics.graph_enters(len(arrays), waits)
    return arrays


def _tensors_of(
    arrays: Sequence[Array], device: torch.device, updated: Mapping[int, torch.Tensor]
) -> list[torch.Tensor]:
    """New tensors on `device` for arrays that a graph gave, but for those that are `updated`."""
    home = pending.trace(device)
    made = []
    for position, array in enumerate(arrays):
        if position in updated:
            made.append(updated[position])
            continue
        dtype = dtypes.to_torch(array.dtype)
        if stored(dtype) is not dtype:
            made.append(tensor(upload(home, transfers.download(array))))
        else:
            made.append(tensor(Value(meta(torch.Size(array.shape), dtype), home, array=array)))
    return made
