"""How XLA:CPU makes machine code in the tests: quickly, except where its optimizations show.

Half the time of the tests was LLVM's. Without its optimizations, and with emitters of fusions that
need no MLIR, XLA takes half the time; and a fifth less (4.0 s -> 3.3 s for three models) where a
program is not split into parts to be compiled by many threads. StableHLO and XLA's passes are the
same. Tests of numerics have some optimizations: without, products and sums are no longer rounded
once. `make operators`, which makes the record, runs the code that users get; so does every test
under `XLA_FLAGS= make test`.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

_JAXLIB = tuple(int(part) for part in importlib.metadata.version("jaxlib").split(".")[:2])
_QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    # Later versions know no such flag, and end the process for it.
    + (" --xla_cpu_use_fusion_emitters=false" if _JAXLIB < (0, 11) else "")
)

# The tests whose programs are compiled with some optimizations, by a part of their paths.
_OPTIMIZED = ("/numerics/", "/fuzz/", "/test_fuse_addcdiv.py")


def is_optimized(path: Path) -> bool:
    """Whether the programs of a file's tests are compiled with optimizations."""
    return any(part in str(path) for part in _OPTIMIZED)


def optimized() -> dict[str, int]:
    """XLA's options for programs with optimizations."""
    is_quick = os.environ.get("XLA_FLAGS") == _QUICK
    return {"xla_backend_optimization_level": 1} if is_quick else {}


def make_quick() -> None:
    """For this process and those that it starts, unless the user has chosen flags, or none."""
    os.environ.setdefault("XLA_FLAGS", _QUICK)


def environment_of_users() -> dict[str, str]:
    """This process's environment, without what `make_quick` put into it."""
    return {k: v for k, v in os.environ.items() if (k, v) != ("XLA_FLAGS", _QUICK)}
