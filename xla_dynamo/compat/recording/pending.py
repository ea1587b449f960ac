"""The pending trace of each device: one for the life of the process, made at its first use."""

from __future__ import annotations

import threading

import torch

from xla_dynamo.compat.values import environment
from xla_dynamo.compat.values.forks import fork_safe

from . import devices
from .trace import Trace

_lock = fork_safe(threading.Lock())
_traces: dict[int, Trace] = {}
_thread = threading.local()


def trace(device: torch.device) -> Trace:
    """The trace of an xla device; without an index, of the calling thread's default device."""
    index = device.index
    if index is None:
        index = devices.default().index
    found = _traces.get(index)
    if found is None:
        devices.prepare()
        environment.use()
        with _lock:
            found = _traces.setdefault(index, Trace(torch.device("xla", index)))
    allow_backward()
    return found


def traces() -> list[Trace]:
    """The traces of all devices that were used."""
    return list(_traces.values())


def runtime_is_used() -> bool:
    """Whether a device was used or looked up: which platform it is cannot change any more."""
    return bool(_traces) or devices.is_initialized()


def forget() -> None:
    """Drop what is pending on every device, and what was recorded there: they begin anew."""
    _traces.clear()


def allow_backward() -> None:
    """Run backward in the calling thread: autograd has no worker threads for device type XLA.

    PyTorch keeps this switch for each thread.
    """
    if not getattr(_thread, "ready", False):
        torch.autograd.set_multithreading_enabled(False)
        _thread.ready = True
