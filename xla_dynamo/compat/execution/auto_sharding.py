"""How tensors are split in SPMD mode where nobody says so: `xr.use_spmd(auto=True)`.

Inputs are split by their first dimension, as a batch is, and large parameters of modules by their
largest, as FSDP does: they are gathered where they are used. The rest is on every device. What
follows for all else is XLA's to find out.

XLA's own search (`use_auto_spmd_partitioning`) is in no published build: jaxlib 0.10.2 on CPUs and
libtpu 0.0.42 leave everything replicated, and with the partitioner Shardy end the process.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from xla_dynamo.backend import metrics
from xla_dynamo.backend.runtime import shardings
from xla_dynamo.backend.runtime.shardings import Grid, Sharding

# Parameters with fewer elements are whole on every device: gathering them costs more than it saves.
LARGE = 1 << 16
_MESH = "XLA_AUTO_SPMD_MESH"  # torch_xla's: "4,2"

Role = Literal["batch", "parameter", ""]

_on = False
_uploading = threading.local()


def begin() -> None:
    """Split from now on what is uploaded."""
    global _on
    _on = True


def is_on() -> bool:
    """Whether tensors that are not marked are split."""
    return _on


def of_programs() -> str:
    """What programs depend on besides their ops, as text."""
    return f"auto {os.environ.get(_MESH, '')}" if _on else ""


@contextmanager
def uploading(what: Literal["parameter", "buffer"]) -> Iterator[None]:
    """What this thread uploads meanwhile is a module's."""
    _uploading.what = what
    try:
        yield
    finally:
        _uploading.what = None


def chosen(host: torch.Tensor, devices: int) -> Sharding | None:
    """How a CPU tensor is split over the devices; None: not at all.

    Raises:
        ValueError: XLA_AUTO_SPMD_MESH is no mesh of all devices.
    """
    grid, what = _grid(devices), getattr(_uploading, "what", None)
    last = len(grid.shape) - 1
    if what == "parameter" and host.numel() >= LARGE:
        by_size = sorted(range(host.dim()), key=lambda dim: -host.shape[dim])
        return _split(host.shape, by_size, grid, (last,), "" if last else "parameter")
    if what is not None or host.dim() < 2:  # labels, whose rows each device takes, and statistics
        return None
    found = _split(host.shape, (0,), grid, tuple(range(last)) or (0,), "batch")
    if found is None and host.shape[0] > 1:
        _warn(host.shape, grid)
    return found


def _split(
    shape: torch.Size, dims: Iterable[int], grid: Grid, axes: tuple[int, ...], role: Role
) -> Sharding | None:
    """By the first of `dims` that the axes divide into equal parts."""
    parts = math.prod(grid.shape[axis] for axis in axes)
    dim = next((dim for dim in dims if shape[dim] and shape[dim] % parts == 0), None)
    if dim is None:
        return None
    return Sharding(grid, tuple([axes if i == dim else () for i in range(len(shape))]), role)


def _grid(devices: int) -> Grid:
    text = os.environ.get(_MESH)
    if not text:
        return shardings.line(devices)
    parts = text.replace("x", ",").split(",")
    shape = tuple([int(part) for part in parts if part.strip().isdecimal()])
    if len(shape) != len(parts) or math.prod(shape) != devices:
        raise ValueError(f"{_MESH} is {text!r}, which is no mesh of {devices} devices")
    names = tuple([f"axis{number}" for number in range(len(shape))])
    return Grid(shape, names, tuple(range(devices)))


def _warn(shape: torch.Size, grid: Grid) -> None:
    metrics.warn_once(
        ("automatic sharding", tuple(shape)),
        f"an input of shape {tuple(shape)} is whole on every device, and each computes all of it: "
        f"its first dimension is no multiple of {' x '.join(map(str, grid.shape))} devices. Pad "
        "it, drop the last batch (drop_last=True), or split it by xs.mark_sharding",
        UserWarning,
    )
