"""mark_step: launch what is pending, then run the closures that the script gave for the step's end.

Closures belong to a device and run in the order in which they were added, after the launch;
asynchronous ones run in one worker thread, whose exception the next barrier raises.
"""

from __future__ import annotations

import atexit
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from xla_dynamo.compat.execution.sync import cut, launched
from xla_dynamo.compat.recording import devices, metrics, pending

from .closures import AsyncClosureHandler, Closure

_worker = AsyncClosureHandler()
_closures: dict[int, list[Closure]] = {}
_async_closures: dict[int, list[Closure]] = {}
_after_step: list[Callable[[], None]] = []
_at_exit: list[Any] = []


def after_step(function: Callable[[], None]) -> Callable[[], None]:
    """Call `function` at the end of every step, before the closures of the script."""
    _after_step.append(function)
    return function


def not_after_step(function: Callable[[], None]) -> None:
    """Undo `after_step`."""
    _after_step.remove(function)


def mark_step(device: devices.Named | None = None, *, wait: bool = False) -> None:
    """End the step on a device (default: the thread's): launch, then run the step's closures.

    Raises:
        What a closure raises.
    """
    index = devices.index_of(device)
    launch(index, wait=wait)
    metrics.count("MarkStep")
    for function in _after_step:
        function()
    run_closures(index)


def launch(device: devices.Named, *, wait: bool = False) -> None:
    """Launch what is pending on a device; with `wait`, return when it is done."""
    index = devices.index_of(device)
    cut(pending.trace(torch.device("xla", index)))
    if wait:
        wait_for([index])


def wait_for(of: Sequence[devices.Named] = ()) -> None:
    """Return when everything launched on these devices (default: all) is done."""
    for index in [devices.index_of(name) for name in of] or list(launched):
        for reference in itertools.chain(*launched.get(index, ())):
            array = reference()
            if array is not None and not array.is_deleted():
                array.block_until_ready()


def sync(tensors: Iterable[torch.Tensor], *, wait: bool = True) -> None:
    """Launch what is pending on the devices of these tensors, and wait for it."""
    for index in {tensor.device.index for tensor in tensors if tensor.device.type == "xla"}:
        launch(index, wait=wait)


def add_closure(closure: Closure, *, asynchronous: bool = False) -> None:
    """Run `closure` at the next barrier of the thread's default device."""
    if not _at_exit:
        _at_exit.append(atexit.register(_run_left_over))
    queued = _async_closures if asynchronous else _closures
    queued.setdefault(devices.index_of(), []).append(closure)


def _run_left_over() -> None:
    """Run at exit what no barrier came for, unless the program failed."""
    if not hasattr(sys, "last_value"):
        for index in sorted({*_closures, *_async_closures}):
            mark_step(index)


def run_closures(device: devices.Named | None = None) -> None:
    """Run the closures of the step that ended on a device.

    Raises:
        What one of them raises; of an asynchronous one, at the barrier after.
    """
    index = devices.index_of(device)
    _worker.run_all(_async_closures.pop(index, ()))
    for closure in _closures.pop(index, []):
        closure()
