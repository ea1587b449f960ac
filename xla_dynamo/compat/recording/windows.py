"""The pending window of each device that is used."""

from __future__ import annotations

import os
import threading

import torch

from . import devices
from .trace import Window

_lock = threading.Lock()
_windows: dict[int, Window] = {}
_thread = threading.local()


def window(device: torch.device) -> Window:
    """The window of an xla device; without an index, of the calling thread's default device."""
    index = device.index
    if index is None:
        index = devices.default().index
    found = _windows.get(index)
    if found is None:
        with _lock:
            found = _windows.setdefault(index, Window(torch.device("xla", index)))
    allow_backward()
    return found


def windows() -> list[Window]:
    """The windows of all devices that were used."""
    return list(_windows.values())


def allow_backward() -> None:
    """Run backward in the calling thread: autograd has no worker threads for device type XLA.

    PyTorch keeps this switch for each thread.
    """
    if not getattr(_thread, "ready", False):
        torch.autograd.set_multithreading_enabled(False)
        _thread.ready = True


def install() -> None:
    """Let forked processes use windows: whoever held a lock is not in them."""
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for each in windows():
        each.lock = threading.RLock()
