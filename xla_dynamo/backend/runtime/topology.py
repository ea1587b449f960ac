"""Compile a StableHLO module for a TPU, on a machine that has none, and analyze its costs.

libtpu compiles for a topology by name on any Linux machine. The program cannot run, but memory
and cost analysis are the TPU compiler's own. Private API met here: none of jax's beyond
`jax.experimental.topologies`; the compile-only client's `compile`.
"""

from __future__ import annotations

import functools
import os
import re
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

    Attributes:
        flops: floating-point operations.
        bytes_accessed: memory traffic in bytes.
        arguments: size of the arguments in bytes.
        outputs: size of the results in bytes.
        aliased: bytes of the results that reuse arguments' memory.
        temporary: bytes of memory that the program needs beside both.
        code: size of the program in bytes.
        cycles: the compiler's own estimate of its operations' times, those of loops as often as
            they run; scatters and kernels in Pallas have none.
    """

    flops: float
    bytes_accessed: float
    arguments: int
    outputs: int
    aliased: int
    temporary: int
    code: int
    cycles: int

    @property
    def peak(self) -> int:
        """Device memory in bytes that must be free to run it."""
        return self.arguments + self.outputs - self.aliased + self.temporary + self.code


def analyze(cost: Mapping[str, float], memory: Any, hlo: str) -> Analysis:
    """From XLA's analyses and its HLO, of ours or of jax.jit(...).lower().compile()."""
    return Analysis(
        flops=cost.get("flops", 0.0),
        bytes_accessed=cost.get("bytes accessed", 0.0),
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        aliased=memory.alias_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        cycles=estimated_cycles(hlo),
    )


_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_OWN = re.compile(r'"estimated_cycles":"(\d+)"')
_LOOP = re.compile(r" while\(.*body=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


def estimated_cycles(hlo: str) -> int:
    """The sum of the estimates that libtpu writes to a program's instructions."""
    computations: dict[str, list[str]] = {}
    entry, lines = "", []
    for line in hlo.splitlines():
        start = _COMPUTATION.match(line)
        if start:
            lines = computations.setdefault(start[2], [])
            entry = start[2] if start[1] else entry
        lines.append(line)

    def total(name: str) -> int:
        cycles = 0
        for line in computations.get(name, ()):
            own, loop, trips = _OWN.search(line), _LOOP.search(line), _TRIPS.search(line)
            cycles += int(own[1]) if own else 0
            cycles += total(loop[1]) * (int(trips[1]) if trips else 1) if loop else 0
        return cycles

    return total(entry)


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
    hlo = "\n".join(m.to_string() for m in executable.hlo_modules())
    memory = executable.get_compiled_memory_stats()
    return analyze(executable.cost_analysis(), memory, hlo), hlo
