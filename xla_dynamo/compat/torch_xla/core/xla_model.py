"""torch_xla.core.xla_model of every release: devices, the barrier, collectives, saving.

Names that later releases deprecated or removed work without a warning. This process is the only
replica: ordinal 0 of 1.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import torch

from xla_dynamo.compat.device import memory_info, step_barrier
from xla_dynamo.compat.recording import devices, replicas, seeds
from xla_dynamo.compat.reporting import ir_text
from xla_dynamo.compat.values import environment
from xla_dynamo.compat.values.values import value_of

from ._collectives import *  # noqa: F403
from ._optimizer import all_reduce_bucketized_gradients as all_reduce_bucketized_gradients
from ._optimizer import fetch_gradients as _fetch_gradients  # noqa: F401
from ._optimizer import optimizer_step as optimizer_step
from ._optimizer import reduce_gradients as reduce_gradients
from ._point_to_point import recv as recv
from ._point_to_point import send as send
from ._rendezvous import *  # noqa: F403
from ._reporting import *  # noqa: F403
from ._transfer import ToXlaTensorArena as ToXlaTensorArena
from ._transfer import is_xla_tensor as is_xla_tensor
from ._transfer import save as save
from ._transfer import to_cpu as _maybe_convert_to_cpu  # noqa: F401
from ._transfer import to_device as send_cpu_data_to_device  # noqa: F401

Device = devices.Named
_run_step_closures = step_barrier.run_closures
_xla_real_device = devices.real


def xla_device(n: int | None = None, devkind: Any = None) -> torch.device:
    """Device `n` (default: the thread's default device), which becomes the thread's default.

    A number beyond the devices of this host, as scripts for eight TPU cores have it, is folded
    onto them, with one warning. With `devkind` numbers count from 1, as on a TPU host of XRT, where
    0 was the CPU.
    """
    environment.warn_of_late()
    if n is None:
        return devices.set_default(devices.default())
    count = devices.count()
    index = n - 1 if devkind is not None and n > 0 else n
    if index >= count:
        warnings.warn(
            f"xla_device(n={n}) is xla:{index % count} here: this host has {count} xla device(s)",
            stacklevel=2,
        )
    return devices.set_default(index % count)


def get_xla_supported_devices(
    devkind: Any = None, max_devices: int | None = None
) -> list[str] | None:
    """The devices as strings, at most `max_devices`; None if none is of a kind in `devkind`."""
    if isinstance(devkind, int):  # the last versions have only max_devices
        devkind, max_devices = None, devkind
    kinds = [devkind] if isinstance(devkind, str) else devkind
    if kinds and devices.hardware() not in kinds:
        return None
    return [str(device) for device in devices.devices()[:max_devices]]


def xla_real_devices(of: Sequence[Device] | None = None) -> list[str]:
    """The names of the hardware: ["CPU:0"]."""
    return [devices.real(device) for device in (devices.devices() if of is None else of)]


def xla_device_hw(device: Device) -> str:
    """The kind of hardware: "CPU", "TPU", "CUDA", ..."""
    return devices.hardware()


def xla_device_kind(device: Device | None = None) -> str:
    """The vendor's name of the device, such as "TPU v5 lite"."""
    return devices.client_device(device).device_kind


def xla_replication_devices(local_devices: Sequence[Device] | None = None) -> list[str]:
    """The hardware names of the devices that run replicas.

    Raises:
        RuntimeError: they are not all devices of this host.
    """
    chosen = devices.devices() if local_devices is None else local_devices
    if len(chosen) != devices.count():
        raise RuntimeError(
            f"Cannot replicate if number of devices ({len(chosen)}) is different from "
            f"{devices.count()}"
        )
    return xla_real_devices(chosen)


def parse_xla_device(device: Device) -> tuple[str, int] | None:
    """("CPU", 0) of "CPU:0" or ("xla", 0) of "xla:0"; None if it is no such name."""
    kind, _, index = str(device).partition(":")
    return (kind, int(index)) if kind in ("xla", devices.hardware()) and index.isdigit() else None


def xrt_world_size(defval: int = 1) -> int:
    """The number of replicas."""
    return replicas.size()


def get_ordinal(defval: int = 0) -> int:
    """The index of this replica."""
    return replicas.rank()


def get_local_ordinal(defval: int = 0) -> int:
    """The index of this replica on its host."""
    return replicas.local_rank()


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this is replica 0 (of its host)."""
    return (replicas.local_rank() if local else replicas.rank()) == 0


def master_print(
    *args: Any, fd: TextIO | None = None, local: bool = False, flush: bool = False
) -> None:
    """print on replica 0; a stream may be the second argument, as it was in 2019."""
    if fd is None and len(args) == 2 and hasattr(args[1], "write"):
        args, fd = args[:1], args[1]
    if is_master_ordinal():
        print(*args, file=fd or sys.stdout, flush=flush)


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """End the step: launch what is pending on the thread's default device, run step closures."""
    step_barrier.mark_step(wait=wait)


def add_step_closure(
    closure: Callable[..., Any], args: Sequence[Any] = (), run_async: bool = False
) -> None:
    """Call closure(*args) after the next barrier; with run_async, in a worker thread."""
    step_barrier.add_closure(lambda: closure(*args), asynchronous=run_async)


def wait_device_ops(devices: Sequence[Device] = ()) -> None:
    """Return when what was launched on these devices (default: all) is done."""
    step_barrier.wait_for(devices)


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Compute these tensors and wait for them."""
    step_barrier.sync(tensors)


def optimization_barrier_(tensors: list[torch.Tensor]) -> None:
    """Nothing: one program per step leaves XLA nothing to reorder across."""


def check_view_sharing(obj: Any) -> None:
    """Check that no two tensors in a nested structure share memory.

    Raises:
        RuntimeError: two do.
    """
    seen: dict[int, torch.Tensor] = {}

    def check(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        for tensor in tensors:
            other = seen.setdefault(tensor.untyped_storage()._cdata, tensor)
            if other is not tensor:
                raise RuntimeError(
                    f"Tensor {tensor.dtype}{list(tensor.shape)} is sharing a view with tensor "
                    f"{other.dtype}{list(other.shape)}"
                )
        return tensors

    ToXlaTensorArena(check, lambda v: type(v) is torch.Tensor).transform(obj)


get_stablehlo = ir_text.stablehlo
get_stablehlo_bytecode = ir_text.stablehlo_bytecode


def set_rng_state(seed: int, device: Device | None = None) -> None:
    """Set the random state of a device: the same number gives the same stream."""
    seeds.set_state(devices.index_of(device), seed)


def get_rng_state(device: Device | None = None) -> int:
    """The random state of a device."""
    return seeds.get_state(devices.index_of(device))


@contextlib.contextmanager
def fork_rng(device: Device | None = None, enabled: bool = True) -> Iterator[None]:
    """A block after which the device's random state is what it was before."""
    before = get_rng_state(device)
    try:
        yield
    finally:
        if enabled:
            set_rng_state(before, device)


def get_memory_info(device: Device | None = None) -> dict[str, int]:
    """Bytes in use, their limit and peak on a device, by the names of every version."""
    return memory_info.info(devices.index_of(device))


def _get_all_reduce_token() -> tuple[None, None]:
    return None, None


def _is_pending(tensor: torch.Tensor) -> bool:
    return value_of(tensor).array is None
