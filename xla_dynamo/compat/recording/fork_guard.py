"""Raises a clear error where a process uses the device that was forked from one that had used it.

The child has the parent's client without its threads: using it would wait for ever. Locks are the
business of values.fork_safe.
"""

from __future__ import annotations

import os

from xla_dynamo.errors import DeviceUnavailable

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
