"""A checkout of torch-mlir -> the programs of its end-to-end suite, and the calls that each makes.

The suite is not packaged: it is read from `projects/pt1/python` of a checkout. What it imports to
run programs in processes of its own, and torchvision where that is not installed, are stood in for:
programs that need them do not run in eager, and count as absent.
"""

from __future__ import annotations

import importlib
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

# A call: which method of the module, and its arguments.
Call = tuple[str, list[Any]]


def load(checkout: Path) -> dict[str, Any]:
    """The suite's programs by name; each can make its module, and call it.

    Raises:
        FileNotFoundError: `checkout` holds no such suite.
    """
    python = checkout / "projects" / "pt1" / "python"
    files = sorted((python / "torch_mlir_e2e_test" / "test_suite").glob("*.py"))
    if not files:
        raise FileNotFoundError(f"{python} holds no end-to-end suite of torch-mlir")
    sys.path.insert(0, str(python))
    _stand_in("multiprocess", set_start_method=lambda *_: None, cpu_count=lambda: 1)
    _stand_in("torch_mlir._version", torch_version_for_comparison=str, version=str)
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):  # another build of torch than its own
        for name in ("torchvision", "torchvision.models", "torchvision.ops"):
            _stand_in(name)
    for file in files:
        try:
            importlib.import_module(f"torch_mlir_e2e_test.test_suite.{file.stem}")
        except (ImportError, OSError) as error:  # an example of ops in C++ that are not packaged
            print(f"{file.name} is left out: {error}", file=sys.stderr)
    registry = importlib.import_module("torch_mlir_e2e_test.registry")
    return {program.unique_name: program for program in registry.GLOBAL_TEST_REGISTRY}


def _stand_in(name: str, **names: Any) -> None:
    module = ModuleType(name)
    vars(module).update(names)
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)
    sys.modules[name] = module


def module_of(program: Any) -> torch.nn.Module:
    """The module of a program, with the same parameters at each call."""
    torch.manual_seed(0)
    random.seed(0)
    return program.program_factory()


def calls(program: Any) -> list[Call]:
    """The calls that a program makes of its module."""
    framework = importlib.import_module("torch_mlir_e2e_test.framework")
    recorder = _Recorder(module_of(program))
    torch.manual_seed(0)
    program.program_invoker(recorder, framework.TestUtils())
    return recorder._calls


def copied(tree: Any) -> Any:
    """The same with tensors of their own."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), tree)


@dataclass
class _Recorder:
    """A module, or a part of it, whose calls are written down."""

    _part: Any
    _path: str = ""
    _calls: list[Call] = field(default_factory=list)

    def __getattr__(self, name: str) -> _Recorder:
        path = f"{self._path}.{name}".removeprefix(".")
        return _Recorder(getattr(self._part, name), path, self._calls)

    def __call__(self, *args: Any) -> Any:
        self._calls.append((self._path, copied(list(args))))
        return self._part(*args)
