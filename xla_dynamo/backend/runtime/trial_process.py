"""A process that compiles one program for a TPU's topology, and may die of it.

libtpu compiles for a topology by name without opening a device, so it can do so while this process
holds the TPU. What it makes is thrown away: only whether the compiler survives is of interest.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir import ir

from xla_dynamo.backend import jax_adapter, metrics

from . import pjrt, topology

# The kinds of devices, and the smallest topology of each. libtpu 0.0.42.1 calls those of its
# topologies by the first name; TPU machines call some of them by the second.
_TOPOLOGIES = {
    "TPU v2": "v2:2x2",
    "TPU v3": "v3:2x2",
    "TPU v4": "v4:2x2x1",
    "TPU v5": "v5p:2x2x1",
    "TPU v5p": "v5p:2x2x1",
    "TPU v5 lite": "v5e:2x2",
    "TPU v5e": "v5e:2x2",
    "TPU v6 lite": "v6e:2x2",
    "TPU v6e": "v6e:2x2",
    "TPU7x": "tpu7x:2x2x1",
}
# What the compiler itself ends by. Others come from outside (out of memory, Ctrl-C).
_OWN_DEATHS = frozenset(
    (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP)
)
_STACK = "*** Check failure stack trace"
_WORDS = 3  # lines
_PATIENCE = 1200.0  # seconds; then nothing is known of a program
_NOTHING = b"func.func public @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"


@dataclass(frozen=True)
class Verdict:
    """How a compiler ended its process: the signal's name, and the last lines that it wrote.

    Both are empty where it did not.
    """

    signal: str = ""
    words: str = ""


def topology_of(device: pjrt.Device) -> str | None:
    """The topology whose devices are of the kind of a TPU, if it is known."""
    return _TOPOLOGIES.get(device.device_kind)


def compile_apart(program: bytes, name: str, overrides: Mapping[str, Any]) -> Verdict | None:
    """Compile for topology `name` in another process; None where that tells nothing.

    program: StableHLO as MLIR's bytecode. overrides: XLA's options.
    """
    ended = _ended(program, name, overrides)
    if ended is None:
        return None
    code, words = ended
    if code == 0:
        return Verdict()
    if -code in _OWN_DEATHS and _survives_nothing(name):
        return Verdict(signal.Signals(-code).name, words)
    metrics.compile_log.info("a trial ended with %d, untold: %s", code, words)
    return None


def _ended(program: bytes, name: str, overrides: Mapping[str, Any]) -> tuple[int, str] | None:
    """The exit code of a process that compiles a program, and its last words."""
    told = json.dumps({"topology": name, "overrides": dict(overrides)}).encode()
    try:
        process = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            input=told + b"\n" + program,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(),
            check=False,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        metrics.compile_log.info("a program was not tried: %s", error)
        return None
    return process.returncode, _last_words(process.stderr.decode(errors="replace"))


@functools.lru_cache(maxsize=len(_TOPOLOGIES))
def _survives_nothing(name: str) -> bool:
    """Whether another process here can compile at all: else no program is to blame."""
    ended = _ended(_NOTHING, name, {})
    return ended is not None and ended[0] == 0


def _environment() -> dict[str, str]:
    """This process's, without what says which TPUs are its own, and with its modules' places."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "PJRT_", "CLOUD_TPU_"))}
    paths = os.pathsep.join(filter(None, sys.path))
    own["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # else libtpu may refuse to load beside its user
    return own | {"JAX_PLATFORMS": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": paths}


def _last_words(errors: str) -> str:
    """The last lines before a stack trace, which says nothing to a user."""
    before = errors.partition(_STACK)[0]
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    return "\n".join(lines[-_WORDS:])


def main() -> None:
    """The other process: what the compiler refuses by an exception, it will tell the first one."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    told = json.loads(sys.stdin.buffer.readline())
    with jax_adapter.new_context():
        module = ir.Module.parse(sys.stdin.buffer.read())
    device = topology.topology_device(told["topology"])
    with contextlib.suppress(Exception):
        pjrt.compile_only(module, device, told["overrides"])
