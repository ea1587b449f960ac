"""Order XLA's work on a GPU after PyTorch's on the same GPU, and PyTorch's after XLA's.

Both queue their work on streams of their own and share memory, so each must wait for the other on
the device; the host waits for neither. XLA waits for an event that PyTorch's current stream records
when a tensor is handed over. One event covers all arguments of a launch, so one argument is handed
over anew at each: a parameter that keeps its array may have been written to since. PyTorch's stream
waits for the arrays that a launch returns, before they become tensors.

The same order makes memory safe that either frees while the other still has work queued on it: the
next program runs after that work. What XLA does outside programs is not ordered. So it uploads
nothing (PyTorch takes CPU tensors to the device), and PyTorch's queue is drained before a compile,
which may try kernels out on freed memory.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

# The default stream is no object of the driver's: CU_STREAM_LEGACY stands for it.
_DEFAULT_STREAM = 1


def shared_with(device: Any) -> bool:
    """Whether `device` is a GPU that PyTorch works on, too."""
    return device.platform == "gpu" and torch.cuda.is_initialized()


def home(device: Any) -> torch.device:
    """PyTorch's name for XLA's GPU."""
    return torch.device("cuda", device.local_hardware_id)


def ordinal(platform: str, devices: Iterable[torch.device]) -> int:
    """Which GPU programs on tensors of `devices` run on: theirs, or the first."""
    if platform not in ("cuda", "rocm"):
        return 0
    return next((on.index or 0 for on in devices if on.type == "cuda"), 0)


def torch_stream(device: Any) -> int:
    """The driver's handle of PyTorch's current stream."""
    return torch.cuda.current_stream(home(device)).cuda_stream or _DEFAULT_STREAM


def after_torch(device: Any) -> int:
    """The handle of a stream of XLA's that waits for what PyTorch has queued so far."""
    handle: int = device.get_stream_for_external_ready_events()
    _external(handle, home(device)).wait_stream(torch.cuda.current_stream(home(device)))
    return handle


@functools.lru_cache(maxsize=64)
def _external(handle: int, on: torch.device) -> torch.cuda.ExternalStream:
    return torch.cuda.ExternalStream(handle, on)


@functools.cache
def has_attention() -> bool:
    """Whether cuDNN's fused attention runs here: on compute capability 8.0 (A100) and newer."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)


def drain(device: Any) -> None:
    """Return when PyTorch's work on the GPU is done."""
    if shared_with(device):
        torch.cuda.synchronize(home(device))


_RESERVED_BY_JAX = ("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION")


@contextlib.contextmanager
def memory_left_to_torch() -> Iterator[None]:
    """JAX's client, made meanwhile, takes memory as it needs it where PyTorch uses the GPU.

    Alone on a GPU it reserves three quarters of it at once, as everywhere; the user's word counts.
    """
    variable = _RESERVED_BY_JAX[0]
    if not torch.cuda.is_initialized() or any(name in os.environ for name in _RESERVED_BY_JAX):
        yield
        return
    os.environ[variable] = "false"
    try:
        yield
    finally:
        del os.environ[variable]
