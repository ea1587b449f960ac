"""torch_xla.runtime: the rank of this process, and the devices of the program.

There is one process, with `local_device_count` PJRT devices. `world_size` counts replicas, not
devices: the threads of a DataParallel, or 1.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from xla_dynamo.compat.execution import auto_sharding, spmd
from xla_dynamo.compat.recording import devices, pending, replicas
from xla_dynamo.compat.values import environment
from xla_dynamo.config import config

F = TypeVar("F", bound=Callable[..., Any])

_cache_paths: list[str] = []


def device_type() -> str:
    """The kind of hardware: "CPU", "TPU", "CUDA", ..."""
    return devices.hardware()


def set_device_type(pjrt_device: str) -> None:
    """Choose the platform, before a device is used.

    Raises:
        RuntimeError: one was used already.
    """
    if pjrt_device != devices.hardware() and pending.runtime_is_used():
        raise RuntimeError(
            "Can't change device type after XLA runtime is initialized: this process runs on "
            f"{devices.hardware()}. Call set_device_type({pjrt_device!r}), or set PJRT_DEVICE, "
            "before the first use of a device"
        )
    os.environ["PJRT_DEVICE"] = pjrt_device
    config.cache_clear()
    devices.hardware_count.cache_clear()


def using_pjrt() -> bool:
    """True: there is no other runtime, and every XLA device computes in bfloat16."""
    return True


is_bf16_supported = using_pjrt


def requires_pjrt(fn: F) -> F:
    """A decorator that changes nothing: there is no other runtime."""
    return fn


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """Device `n`, which becomes the thread's default.

    Raises:
        IndexError: it does not exist.
    """
    return devices.default() if n is None else devices.set_default(n)


def world_size() -> int:
    """The number of replicas."""
    return replicas.size()


def global_ordinal() -> int:
    """The index of this replica."""
    return replicas.rank()


def local_ordinal() -> int:
    """The index of this replica on its host."""
    return replicas.local_rank()


def process_count() -> int:
    """The number of processes whose devices a program in SPMD mode runs on; else 1."""
    on = spmd.where()
    return 1 if on is None else len({device.process_index for device in on.devices})


def local_process_count() -> int:
    """1: the number of processes on this host that have devices of this process's program."""
    return 1


def process_index() -> int:
    """The index of this process among them, and of this host."""
    on = spmd.where()
    return 0 if on is None else on.devices[0].client.process_index()


host_index = process_index


def global_device_count() -> int:
    """The number of xla devices; this process has all of them."""
    return devices.count()


local_device_count = addressable_device_count = global_device_count


def global_runtime_device_count() -> int:
    """The number of devices of the hardware, in all processes."""
    return len(devices.everywhere())


def addressable_runtime_device_count() -> int:
    """The number of devices of the hardware that are this process's."""
    return devices.hardware_count()


def runtime_device_attributes(device: devices.Named) -> dict[str, object]:
    """What is known of a device: {"name": "CPU:0"}, and on a TPU its coordinates and core."""
    return {"name": devices.real(device), **_attributes(devices.client_device(device))}


def _attributes(device: object) -> dict[str, object]:
    names = ("coords", "core_on_chip", "slice_index")
    return {name: getattr(device, name) for name in names if hasattr(device, name)}


def global_runtime_device_attributes() -> list[dict[str, object]]:
    """`runtime_device_attributes` of every device."""
    return [
        {"name": f"{devices.hardware()}:{number}", **_attributes(device)}
        for number, device in enumerate(devices.everywhere())
    ]


def use_spmd(auto: bool | None = False) -> None:
    """SPMD mode: xla:0 is all devices, and programs are partitioned over them by shardings.

    Tensors that are on xla:0 already are replicated.

    auto: what is not marked is split, too: see execution.auto_sharding.
    """
    os.environ["XLA_USE_SPMD"] = "1"
    spmd.begin()
    if auto:
        os.environ["XLA_AUTO_SPMD"] = "1"
        auto_sharding.begin()


is_spmd = environment.in_spmd


def get_master_ip() -> str:
    """The address of the first host: this one's."""
    return "127.0.0.1"


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keep compiled programs in a folder.

    Raises:
        AssertionError: this was called before.
    """
    assert not _cache_paths, "Computation cache has already been initialized"
    if readonly:
        warnings.warn(f"the cache in {path} is not read-only: programs are added", stacklevel=2)
    _cache_paths.append(path)
    os.environ["XLA_DYNAMO_CACHE_DIR"] = path
    config.cache_clear()


def get_num_cached_compilation_graph() -> int:
    """How many programs of lazy traces are kept."""
    states = [trace.root for trace in pending.traces()]
    count = 0
    while states:
        state = states.pop()
        count += len(state.programs)
        states.extend(state.children.values())
    return count


_init_world_size_ordinal = functools.cache(lambda: None)
