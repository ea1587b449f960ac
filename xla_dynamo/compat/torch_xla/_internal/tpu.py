"""torch_xla._internal.tpu: the TPU chips of this host, which is the only one of its pod."""

from __future__ import annotations

import glob
import math
import os
from typing import Any, NamedTuple

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
    return len(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))


def num_available_devices() -> int:
    """Devices of this process, of any hardware: libraries that ask call every xla device a TPU."""
    return devices.count()


def num_logical_cores_per_chip() -> int:
    """Devices of a chip: two up to v3, one since."""
    return 2 if version() < 4 else 1


num_expected_global_devices = num_available_devices


def num_local_processes() -> int:
    """1: the number of processes on this host, and of hosts in the pod."""
    return 1


num_tpu_workers = num_local_processes


def process_bounds_size(default: int = 1) -> int:
    """Processes of the program."""
    return default


def task_id() -> int | None:
    """The number of this process, if the environment gives one."""
    text = os.environ.get("CLOUD_TPU_TASK_ID")
    return int(text) if text else None


def worker_id(default: int = 0) -> int:
    """The number of this host."""
    return int(os.environ.get("TPU_WORKER_ID") or default)


def get_tpu_env() -> dict[str, str]:
    """The TPU variables of the environment, without the TPU_ in front."""
    return {k.removeprefix("TPU_"): v for k, v in os.environ.items() if k.startswith("TPU_")}


build_tpu_env_from_vars = get_tpu_env


def version() -> int:
    """The TPU's generation, from the device kind ("TPU v5 lite" -> 5); 0 where there is none."""
    if devices.hardware() != "TPU":
        return 0
    kind = devices.client_device().device_kind
    return next((int(name[1:]) for name in _VERSIONS if name in kind), 0)


def get_tpu_type() -> str:
    """The accelerator type, such as "v5litepod-8", or the device kind."""
    return os.environ.get("TPU_ACCELERATOR_TYPE") or devices.client_device().device_kind


def get_worker_ips() -> list[str]:
    """The addresses of the pod's hosts."""
    return [name for name in os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if name] or [
        "127.0.0.1"
    ]


def discover_master_worker_ip(use_localhost: bool = True) -> str:
    """The address of the first host."""
    return "localhost" if use_localhost else get_worker_ips()[0]


def configure_topology(
    local_rank: int = 0, local_world_size: int = 1, base_port: int = 8476
) -> None:
    """Nothing: one process drives all chips of the host, as libtpu does by default."""


configure_one_chip_topology = configure_topology
