"""Processes that are forked: their locks are free, and using a device that cannot work is an error.

The child of a process that had used a device has the parent's client without its threads: using it
would wait for ever. Who held a lock in the parent is not in the child.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

from xla_dynamo.errors import DeviceUnavailable

Lock = TypeVar("Lock")

# Whether this process was forked from one that had used a device.
forked = False
_used = False


def use() -> None:
    """The device is used from now on.

    Raises:
        DeviceUnavailable: this process cannot.
    """
    global _used
    if forked:
        raise DeviceUnavailable(
            "this process was forked from one that had used an xla device, which does not work in "
            "the child. Start it by 'spawn': torch.multiprocessing.get_context('spawn'), "
            "DataLoader(..., multiprocessing_context='spawn'), or use the device in the parent "
            "only after the fork; what workers of a DataLoader return should be CPU tensors."
        )
    _used = True


def _in_child() -> None:
    global forked
    forked = forked or _used


os.register_at_fork(after_in_child=_in_child)


def fork_safe(lock: Lock) -> Lock:
    """`lock`, made anew in every child process, as the standard library does with its own."""
    made: Any = lock
    os.register_at_fork(after_in_child=made._at_fork_reinit)
    return lock
