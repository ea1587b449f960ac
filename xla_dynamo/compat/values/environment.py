"""Environment variables of torch_xla that count when a device is first used, not at the import.

A script, or a library such as Lightning, may set them after its imports. What is set once they have
been read has no effect, and a warning says so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from xla_dynamo.backend import metrics
from xla_dynamo.bookkeeping import optional

from .forks import fork_safe

# Read when a device is looked up: which platform it is, and how XLA runs there.
PLATFORM = ("PJRT_DEVICE", "CPU_NUM_DEVICES", "XLA_FLAGS", "LIBTPU_INIT_ARGS")
# Read at the first tensor on a device: how values are stored, and what is reported.
DEVICE = (
    "XLA_USE_BF16",
    "XLA_USE_FP16",
    "XLA_USE_F16",
    "XLA_DOWNCAST_BF16",
    "XLA_DOWNCAST_FP16",
    "XLA_USE_32BIT_LONG",
    "PT_XLA_DEBUG",
    "PT_XLA_DEBUG_LEVEL",
    "PT_XLA_DEBUG_FILE",
    "XLA_SAVE_TENSORS_FILE",
    "XLA_SAVE_TENSORS_FMT",
    "XLA_METRICS_FILE",
    "XLA_METRICS_SAMPLES",
)

_OFF = {None, "", "0"}

_lock = fork_safe(threading.Lock())
_read: dict[str, str | None] = {}
_at_first_use: list[Callable[[], None]] = []


def read(names: tuple[str, ...]) -> Mapping[str, str]:
    """Those of the variables that were set when each was read first."""
    with _lock:
        for name in names:
            if name not in _read:
                _read[name] = os.environ.get(name)
        return {name: text for name in names if (text := _read[name]) is not None}


def at_first_use(function: Callable[[], None]) -> None:
    """Call `function` before the first tensor comes to a device."""
    _at_first_use.append(function)


def use() -> None:
    """A device is used: what is read at that time is read, if it has not been."""
    read(PLATFORM)
    read(DEVICE)
    with _lock:
        waiting = _at_first_use[:]
        _at_first_use.clear()
    for function in waiting:
        function()


def in_spmd() -> bool:
    """Whether SPMD mode is on, by xr.use_spmd() or the user: it may begin and end at any time."""
    return os.environ.get("XLA_USE_SPMD", "").lower() in ("1", "true", "yes", "on")


@optional(None)
def warn_of_late() -> None:
    """Say once of each variable that it was changed too late."""
    for name, used in [*_read.items()]:
        now = os.environ.get(name)
        if now != used and not {now, used} <= _OFF:
            is_now = "unset" if now is None else f"{now!r}"
            was = "unset" if used is None else f"{used!r}"
            text = (
                f"{name} is {is_now} now, but was {was} when an xla device was first used, and "
                "that stays: set it before, or outside the program."
            )
            metrics.warn_once(("late", name), text, UserWarning)
