"""`import torch_xla` -> every submodule by attribute, each loaded when it is first used."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType


def on_demand(package: str) -> Callable[[str], ModuleType]:
    """A `__getattr__` for a package: its submodules."""

    def find(name: str) -> ModuleType:
        full = f"{package}.{name}"
        if name.startswith("__") or importlib.util.find_spec(full) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(full)

    return find
