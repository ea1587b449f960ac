"""torch.xla: the functions that PyTorch expects of a device's module.

A random state is a uint8 tensor of 8 bytes on the CPU: one 64-bit number, little-endian.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.recording import devices, pending, seeds

from . import step_barrier

_initialized = True  # torch.utils.checkpoint saves the random state of initialized devices only


def is_available() -> bool:
    """Whether there are xla devices: always, once compat is installed."""
    return True


def is_initialized() -> bool:
    """Whether a device was used."""
    return bool(pending.traces())


def device_count() -> int:
    """How many xla devices this process has."""
    return devices.count()


def current_device() -> int:
    """The number of the calling thread's default device."""
    return devices.default().index


def set_device(device: devices.Named) -> None:
    """Make `device` the calling thread's default."""
    devices.set_default(device)


def synchronize(device: devices.Named | None = None) -> None:
    """Launch what is pending on a device (default: the thread's) and wait for it."""
    step_barrier.launch(devices.index_of(device), wait=True)


def empty_cache() -> None:
    """Nothing: XLA's allocator keeps no cache that a program could give back."""


class device:
    """Context manager: another default device for the calling thread."""

    def __init__(self, device: devices.Named | None) -> None:
        self._inside = device

    def __enter__(self) -> None:
        self._outside = devices.default()
        if self._inside is not None:
            devices.set_default(self._inside)

    def __exit__(self, *error: Any) -> None:
        devices.set_default(self._outside)


def get_rng_state(device: devices.Named | None = None) -> torch.Tensor:
    """The random state of a device: 8 bytes."""
    state = seeds.get_state(devices.index_of(device))
    return torch.frombuffer(bytearray(state.to_bytes(8, "little")), dtype=torch.uint8)


def set_rng_state(new_state: torch.Tensor, device: devices.Named | None = None) -> None:
    """Set the random state of a device to what get_rng_state gave."""
    state = int.from_bytes(new_state.cpu().numpy().tobytes(), "little")
    seeds.set_state(devices.index_of(device), state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The random states of all devices."""
    return [get_rng_state(index) for index in range(devices.count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the random states of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the calling thread's default device."""
    seeds.set_state(devices.default().index, seed)


def manual_seed_all(seed: int) -> None:
    """Seed every device."""
    seeds.seed_all(seed)


def _is_in_bad_fork() -> bool:
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes of torch.autocast("xla")."""
    return [torch.bfloat16, torch.float16]
