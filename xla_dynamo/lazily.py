"""Modules that wait for their first use: jax and torch_mlir take longer to import than torch.

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import pjrt
else:
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())
"""

from __future__ import annotations

import importlib
from typing import Any

from . import interrupts


class Waiting:
    """Imports its module when a name of it is asked for, and then gives it its own place."""

    def __init__(self, name: str, namespace: dict[str, Any]) -> None:
        self._name = name
        self._namespace = namespace

    def __getattr__(self, attribute: str) -> Any:
        with interrupts.deferred():  # modules that are half imported are of no use any more
            module = importlib.import_module(self._name)
        self._namespace[self._name.rpartition(".")[2]] = module  # the next use costs nothing
        return getattr(module, attribute)


def lazily(name: str, namespace: dict[str, Any]) -> Any:
    """What stands for the module `name` in a module's globals, until a name of it is asked for."""
    return Waiting(name, namespace)
