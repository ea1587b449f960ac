"""torch_xla._internal.tpu: the TPU chips of this host, and the hosts of its slice.

Where the chips are known, nothing here uses a device: it can be asked before xmp.spawn.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any, NamedTuple

from xla_dynamo.backend.runtime import tpu_chips, tpu_slice
from xla_dynamo.compat.recording import devices

_VERSIONS = ("v2", "v3", "v4", "v5", "v6", "v7")


class MeshShape(NamedTuple):
    """Chips in each direction."""

    x: int
    y: int
    z: int

    @classmethod
    def from_string(cls, mesh: str) -> MeshShape:
        """The shape that "2,2,1" says."""
        return cls(*(int(part) for part in mesh.split(",")))

    @property
    def size(self) -> int:
        """The number of chips."""
        return math.prod(self)

    def __mul__(self, other: Any) -> MeshShape:
        return MeshShape(*(a * b for a, b in zip(self, other, strict=True)))


def num_available_chips() -> int:
    """TPU chips on this host; 0 where there are none."""
    return tpu_chips.here().count


def num_logical_cores_per_chip() -> int:
    """Devices of a chip: two up to v3, one since."""
    return tpu_chips.here().devices_of_each


def num_available_devices() -> int:
    """Devices of this host, of any hardware: libraries that ask call every xla device a TPU."""
    if devices.hardware() == "TPU" and num_available_chips():
        return num_available_chips() * num_logical_cores_per_chip()
    return devices.count()


def num_expected_global_devices() -> int:
    """Devices of all hosts."""
    return num_available_devices() * num_tpu_workers()


def num_local_processes() -> int:
    """The number of processes that xmp.spawn starts on this host: one for each chip."""
    return len(tpu_slice.here().chips) if num_available_chips() > 1 else 1


def num_tpu_workers() -> int:
    """The number of hosts."""
    return len(get_worker_ips())


def process_bounds_size(default: int = 1) -> int:
    """Processes of the program."""
    bounds = os.environ.get("TPU_PROCESS_BOUNDS")
    return MeshShape.from_string(bounds).size if bounds else default


def task_id() -> int | None:
    """The number of this process, if the environment gives one."""
    text = os.environ.get("CLOUD_TPU_TASK_ID")
    return int(text) if text else None


def worker_id(default: int = 0) -> int:
    """The number of this host."""
    return tpu_slice.here().worker if num_available_chips() > 1 else default


def get_tpu_env() -> dict[str, str]:
    """The TPU variables of the environment, without the TPU_ in front."""
    return {k.removeprefix("TPU_"): v for k, v in os.environ.items() if k.startswith("TPU_")}


build_tpu_env_from_vars = get_tpu_env


def version() -> int:
    """The TPU's generation, such as 5, for v2 3 as well; 0 where there is none."""
    if devices.hardware() != "TPU":
        return 0
    known = re.search(r"\d", tpu_chips.here().generation)
    if known is not None:
        return int(known[0])
    kind = devices.client_device().device_kind
    return next((int(name[1:]) for name in _VERSIONS if name in kind), 0)


def get_tpu_type() -> str:
    """The accelerator type, such as "v5litepod-8", the generation, or the device kind."""
    known = os.environ.get("TPU_ACCELERATOR_TYPE") or tpu_chips.here().generation
    return known or devices.client_device().device_kind


def get_worker_ips() -> list[str]:
    """The addresses of the slice's hosts."""
    return list(tpu_slice.here().hosts) if num_available_chips() > 1 else ["localhost"]


def discover_master_worker_ip(use_localhost: bool = True) -> str:
    """The address of the first host."""
    return "localhost" if use_localhost else get_worker_ips()[0]


def configure_topology(
    local_rank: int = 0, local_world_size: int = 1, base_port: int = 8476
) -> None:
    """Nothing: xmp.spawn and torchrun's processes tell libtpu by themselves."""


configure_one_chip_topology = configure_topology
