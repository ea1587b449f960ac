"""The lazy devices: how many there are, their names, and each thread's default.

torch.device("xla:0")  <->  "xla:0"  <->  "CPU:0", the name of the hardware
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.compat.values import environment
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import pjrt
else:
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())


Named = torch.device | str | int

# PJRT platform -> torch_xla's name of the hardware.
_HARDWARE = {"cpu": "CPU", "tpu": "TPU", "cuda": "CUDA", "gpu": "CUDA", "rocm": "ROCM"}
_thread = threading.local()


# Are called, once, before the platform is initialised.
before_use: list[Callable[[], None]] = []


def prepare() -> None:
    """Do what waits for the first use of a device."""
    while before_use:
        before_use.pop()()


_merged = False


def merge() -> None:
    """From now on xla:0 is all devices: see execution.spmd."""
    global _merged
    _merged = True


def count() -> int:
    """How many xla devices this process has.

    Raises:
        DeviceUnavailable: the platform cannot be initialised here.
    """
    return 1 if _merged else hardware_count()


@functools.cache
def hardware_count() -> int:
    """How many devices of the platform this process has.

    Raises:
        DeviceUnavailable: the platform cannot be initialised here.
    """
    prepare()
    environment.read(environment.PLATFORM)
    return pjrt.device_count(default_platform(), asynchronous=True)


def everywhere() -> tuple[Any, ...]:
    """The PJRT devices of all processes, in the order of their ranks."""
    found = client_device(0).client.devices()
    return tuple(sorted(found, key=lambda device: (device.process_index, device.id)))


def devices() -> list[torch.device]:
    """Every xla device of this process."""
    return [torch.device("xla", index) for index in range(count())]


def hardware() -> str:
    """The kind of hardware: "CPU", "TPU", "CUDA", ..."""
    platform = default_platform()
    return _HARDWARE.get(platform, platform.upper())


def client_device(device: Named | None = None) -> Any:
    """The PJRT device behind a lazy device."""
    return _client_device(default_platform(), index_of(device))


@functools.cache
def _client_device(platform: str, index: int) -> Any:
    prepare()
    environment.read(environment.PLATFORM)
    return pjrt.device(platform, index, asynchronous=True)


def is_initialized() -> bool:
    """Whether the platform is fixed, because its devices were looked up."""
    return hardware_count.cache_info().currsize + _client_device.cache_info().currsize > 0


def default() -> torch.device:
    """The default device of the calling thread; at first xla:0."""
    return torch.device("xla", getattr(_thread, "index", 0))


def set_default(device: Named) -> torch.device:
    """Make `device` the default of the calling thread.

    Raises:
        ValueError: it is not an xla device.
        IndexError: it does not exist.
    """
    index = index_of(device)
    if index >= count():
        names = [str(found) for found in devices()]
        raise IndexError(f"Device index {index} out of range in {names}")
    _thread.index = index
    return torch.device("xla", index)


def index_of(device: Named | None = None) -> int:
    """The number of a device given as torch.device, "xla:1", "xla", "TPU:1" or 1; None: default.

    Raises:
        ValueError: it is no xla device.
    """
    if device is None:
        return default().index
    if isinstance(device, int):
        return device
    match = re.fullmatch(r"(\w+)(?::(\d+))?", str(device))
    if match is None or match[1] not in ("xla", hardware()):
        raise ValueError(f"{device} is not an xla device: they are {[str(d) for d in devices()]}")
    return int(match[2]) if match[2] else default().index


def real(device: Named) -> str:
    """The name of the hardware: "CPU:0" for xla:0 on a machine without accelerator."""
    return f"{hardware()}:{index_of(device)}"
