"""Graphs of torch.compile on tensors of the device: arrays go in and come out, nothing is copied.

To the metrics, and to those who are told of programs, they are programs like those of traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.compat.recording import metrics, pending
from xla_dynamo.compat.recording.trace import trace_of
from xla_dynamo.compat.values.storage import stored
from xla_dynamo.compat.values.values import Array, Value, leaf_of, meta, tensor
from xla_dynamo.lazily import lazily

from .sync import cut, device_of, download, materialize, note_launch, upload

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import pjrt, transfers
else:
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


def launch(
    executable: pjrt.Executable, tensors: Sequence[torch.Tensor], device: torch.device
) -> list[torch.Tensor]:
    """Run a program on tensors of `device`, or of the CPU; its results are new tensors there."""
    arrays = _arrays_of(tensors, device)
    results = executable(*arrays)
    made = _tensors_of(results, device)
    note_launch(device.index, results)
    metrics.graph_launched(device.index, results, id(executable))
    for listener in on_launch:
        listener(executable)
    return made


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


def _tensors_of(arrays: Sequence[Array], device: torch.device) -> list[torch.Tensor]:
    """New tensors on `device` for arrays that a graph gave."""
    home = pending.trace(device)
    made = []
    for array in arrays:
        dtype = dtypes.to_torch(array.dtype)
        if stored(dtype) is not dtype:
            made.append(tensor(upload(home, transfers.download(array))))
        else:
            made.append(tensor(Value(meta(torch.Size(array.shape), dtype), home, array=array)))
    return made
