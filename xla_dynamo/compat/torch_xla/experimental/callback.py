"""Callbacks and events for when a tensor is computed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from xla_dynamo.compat.execution import sync
from xla_dynamo.compat.values.values import value_of


def on_ready_callback(tensor: torch.Tensor, callback: Callable[[torch.Tensor], None]) -> None:
    """Call callback(tensor) in another thread, once the tensor is computed."""
    array = sync.materialize(value_of(tensor))

    def wait() -> None:
        array.block_until_ready()
        callback(tensor)

    threading.Thread(target=wait).start()  # no daemon: Python must not go away under the wait


def on_ready_event(tensor: torch.Tensor) -> threading.Event:
    """An event that is set once the tensor is computed."""
    ready = threading.Event()
    on_ready_callback(tensor, lambda _: ready.set())
    return ready
