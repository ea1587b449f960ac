"""How XLA:CPU makes machine code in the tests: quickly, except where operators are swept.

Half the time of the tests was LLVM's. Without its optimizations, and with the emitter of single
fusions that needs no MLIR, XLA takes a fifth of the time for a training step (13 s -> 2.4 s for
a transformer's 1,060 ops), a half for one op. StableHLO and the passes of XLA are the same. The
sweeps of operators run in processes of their own, with the code that users get; so does every
test under `XLA_FLAGS= make test`.
"""

from __future__ import annotations

import os

_QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def make_quick() -> None:
    """For this process and those that it starts, unless the user has chosen flags, or none."""
    os.environ.setdefault("XLA_FLAGS", _QUICK)


def environment_of_users() -> dict[str, str]:
    """This process's environment, without what `make_quick` put into it."""
    return {k: v for k, v in os.environ.items() if (k, v) != ("XLA_FLAGS", _QUICK)}
