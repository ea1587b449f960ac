"""Stands in for the names that a test file imports and that are not here, so that the rest runs.

A name is then an object that raises when it is used: the tests that need it fail, one by one,
instead of the file.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

# Caches that the set-up of tests clears.
_CACHES = {
    "torch_xla.experimental.scan": "_SCAN_COMPUTATION_CACHE",
    "torch_xla.experimental.scan_layers": "_ONE_LAYER_CACHE",
}


@dataclass(frozen=True)
class Absent:
    """A name of torch_xla that this project does not have."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AttributeError(f"internal name of torch_xla that is not here: {self.name}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"internal name of torch_xla that is not here: {self.name}.{name}")


def stand_in(path: Path) -> None:
    """Put what `path` imports of torch_xla, and does not find, into its modules.

    Also what it takes of the C++ extension outside functions and classes.
    """
    program = ast.parse(path.read_text())
    for statement in program.body:
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for name in re.findall(r"torch_xla\._XLAC\.(\w+)", ast.unparse(statement)):
                extension = importlib.import_module("torch_xla._XLAC")
                if not hasattr(extension, name):
                    setattr(extension, name, Absent(f"torch_xla._XLAC.{name}"))
    for node in ast.walk(program):
        if isinstance(node, ast.Import):
            for alias in node.names:
                _module(alias.name)
        elif isinstance(node, ast.ImportFrom) and (module := _module(node.module or "")):
            for alias in node.names:
                if alias.name != "*" and not _has(module, alias.name):
                    setattr(module, alias.name, Absent(f"{node.module}.{alias.name}"))


def _module(name: str) -> ModuleType | None:
    """A module of torch_xla: the one that is here, or an empty one; None for others' modules."""
    if name.split(".")[0] != "torch_xla":
        return None
    try:
        module = importlib.import_module(name)
        if name in _CACHES:
            vars(module).setdefault(_CACHES[name], {})
        return module
    except ImportError:
        parent, _, last = name.rpartition(".")
        sys.modules[name] = module = ModuleType(name)
        setattr(_module(parent), last, module)
        return module


def _has(module: ModuleType, name: str) -> bool:
    try:
        importlib.import_module(f"{module.__name__}.{name}")
    except ImportError:
        return hasattr(module, name)
    return True
