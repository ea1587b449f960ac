"""How XLA:CPU makes machine code in the tests: quickly, except where operators are swept.

Half the time of the tests was LLVM's. With few of its optimizations (without any, products and
sums are no longer rounded once), and with emitters of fusions that need no MLIR, XLA takes half
the time (13 s -> 6 s for a transformer's 1,060 ops); and a fifth less (4.0 s -> 3.3 s for three
models) where a program is not split into parts to be compiled by many threads. StableHLO and XLA's
passes are the same. `make operators`, which makes the record, runs the code that users get; so does
every test under `XLA_FLAGS= make test`.
"""

from __future__ import annotations

import importlib.metadata
import os

_JAXLIB = tuple(int(part) for part in importlib.metadata.version("jaxlib").split(".")[:2])
_QUICK = (
    "--xla_backend_optimization_level=1 --xla_cpu_parallel_codegen_split_count=1"
    # Later versions know no such flag, and end the process for it.
    + (" --xla_cpu_use_fusion_emitters=false" if _JAXLIB < (0, 11) else "")
)


def make_quick() -> None:
    """For this process and those that it starts, unless the user has chosen flags, or none."""
    os.environ.setdefault("XLA_FLAGS", _QUICK)


def environment_of_users() -> dict[str, str]:
    """This process's environment, without what `make_quick` put into it."""
    return {k: v for k, v in os.environ.items() if (k, v) != ("XLA_FLAGS", _QUICK)}
