"""The error for an allocation that XLA refused: it names the largest buffers."""

from __future__ import annotations

import gc
import re
from typing import NoReturn

import torch

from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values import describe
from xla_dynamo.compat.values.format_units import show_bytes
from xla_dynamo.compat.values.trie import metas_in
from xla_dynamo.compat.values.values import Meta, Value
from xla_dynamo.errors import OutOfMemory

_REFUSED = re.compile(r"RESOURCE_EXHAUSTED|out of memory|\bOOM\b", re.IGNORECASE)
_HOST = re.compile(r"DefaultCPUAllocator")
_SHOWN = 5


def reraise(error: Exception, trace: Trace) -> NoReturn:
    """Raise what compiling, launching or reading raised.

    Raises:
        OutOfMemory: XLA could not allocate; with the largest buffers of the device.
        error: in every other case.
    """
    if isinstance(error, OutOfMemory) or not _REFUSED.search(str(error)):
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: together they would outlive the handler
    raise OutOfMemory(
        f"{trace.device} out of memory. XLA says: {str(error).splitlines()[0]}\n"
        f"The largest buffers of the program and of the tensors alive:\n{largest(trace)}\n"
        "Use a smaller batch, bfloat16 or torch.utils.checkpoint, and drop references to results "
        "that are not needed before the barrier (del, detach())."
    ) from error


def lacks_memory(error: Exception) -> bool:
    """Whether it may go well another time, with more memory free on the device or the host."""
    text = str(error)
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or bool(_REFUSED.search(text) or _HOST.search(text))


@optional("  (not known)")
def largest(trace: Trace) -> str:
    """The largest buffers of a device, one a line: size, shape, and the line that makes them."""
    buffers: dict[int, tuple[Meta, str]] = {}
    path = trace.state.path()
    if trace.values:
        metas = [(m, state) for state in path for m in metas_in(state.outputs)]
        for value, (meta, state) in zip(trace.values, metas, strict=False):
            made = describe.op_name(state.op.func)
            buffers[id(value)] = meta, f"result of {made} at {describe.where(state.location)}"
        for i, value in enumerate(trace.inputs):
            buffers[id(value)] = value.meta, f"input {i} of the program"
    for found in gc.get_objects():
        if type(found) is Value and found.home is trace and found.array is not None:
            buffers.setdefault(id(found), (found.meta, "a tensor that is alive"))
    sized = [(m.shape.numel() * m.dtype.itemsize, m, what) for m, what in buffers.values()]
    ordered = sorted(sized, key=lambda each: -each[0])
    return "\n".join(f"  {show_bytes(n)}  {m}, {what}" for n, m, what in ordered[:_SHOWN])
