"""Compile a StableHLO module for a TPU, on a machine that has none, and analyze its costs.

libtpu compiles for a topology by name on any Linux machine. The program cannot run, but memory
and cost analysis are the TPU compiler's own. Private API met here: none of jax's beyond
`jax.experimental.topologies`; the compile-only client's `compile`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jax.experimental import topologies

from xla_dynamo.errors import CompileError, DeviceUnavailable

from . import pjrt

# Without these, libtpu asks Google Cloud's metadata server for the machine's type, and locks the
# machine's TPUs for this process, though it only compiles.
_ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


@dataclass(frozen=True)
class Analysis:
    """The device compiler's analysis of a program (per step, one core).

    flops: floating-point operations. bytes_accessed: memory traffic in bytes.
    arguments, outputs, aliased, temporary, code: sizes in bytes; `aliased` bytes of the outputs
    reuse arguments' memory.
    """

    flops: float
    bytes_accessed: float
    arguments: int
    outputs: int
    aliased: int
    temporary: int
    code: int

    @property
    def peak(self) -> int:
        """Device memory in bytes that must be free to run it."""
        return self.arguments + self.outputs - self.aliased + self.temporary + self.code


def analyze(cost: Mapping[str, float], memory: Any) -> Analysis:
    """From XLA's cost and memory analysis, of ours or of jax.jit(...).lower().compile()."""
    return Analysis(
        flops=cost.get("flops", 0.0),
        bytes_accessed=cost.get("bytes accessed", 0.0),
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        aliased=memory.alias_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
    )


def topology_device(name: str) -> pjrt.Device:
    """One compile-only device of a TPU topology such as "v5e:2x2" or "v6e:2x2".

    Raises:
        DeviceUnavailable: libtpu is not installed or does not know the topology.
    """
    return topology_devices(name)[0]


@functools.lru_cache(maxsize=16)
def topology_devices(name: str) -> tuple[pjrt.Device, ...]:
    """The compile-only devices of a TPU topology.

    Raises:
        DeviceUnavailable: libtpu is not installed or does not know the topology.
    """
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        description = topologies.get_topology_desc(name, platform="tpu")
    except Exception as error:
        raise DeviceUnavailable(
            f"no TPU topology {name!r}: {error}. Install libtpu (pip install 'xla_dynamo[tpu]')."
        ) from error
    return tuple(description.devices)


def compile(module: Any, name: str) -> tuple[Analysis, str]:
    """Compile a StableHLO module for a topology: its analysis and optimized HLO.

    Raises:
        CompileError: with the TPU compiler's message (out of memory, say).
        DeviceUnavailable: see `topology_device`.
    """
    device = topology_device(name)
    try:
        executable = pjrt.compile_only(module, device)
    except Exception as error:
        raise CompileError(f"the TPU compiler refused the program: {error}") from error
    analysis = analyze(executable.cost_analysis(), executable.get_compiled_memory_stats())
    hlo = "\n".join(m.to_string() for m in executable.hlo_modules())
    return analysis, hlo
