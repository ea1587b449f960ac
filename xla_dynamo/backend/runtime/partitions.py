# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# (jaxlib ships no type information for its native module.)
"""Arrays that are split over several devices: arguments and results of one partitioned program.

To PJRT such an array is its parts, in the order of the devices. JAX's sharding of it is a label: it
has as many parts, but in that order; its axes are named after our `Sharding`.

Private API of jax and jaxlib met here, seen on 0.10.2: array.ArrayImpl, core.ShapedArray,
batched_device_put, HloSharding, and the parameter and output shardings of an executable.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax._src import core
from jax._src.array import ArrayImpl
from jax._src.lib import xla_client as xc

from xla_dynamo.errors import CompileError, NotAvailable

from . import shardings
from .shardings import Sharding

Array = Any
Device = Any
Devices = tuple[Device, ...]


@dataclass(frozen=True)
class Partitions:
    """Devices over which one program is partitioned, by the shardings of what it takes and gives.

    outputs: None where XLA chooses.
    """

    devices: Devices
    inputs: tuple[Sharding, ...] = ()
    outputs: tuple[Sharding | None, ...] = ()

    def replicated(self, dims: int) -> Sharding:
        """All of a tensor with `dims` dimensions on each of the devices."""
        return shardings.replicated(shardings.line(len(self.devices)), dims)


@dataclass(frozen=True)
class _Axis:
    """The name of an axis of a label."""

    of: Sharding
    number: int


@functools.lru_cache(maxsize=4096)
def label(sharding: Sharding, devices: Devices) -> Any:
    """JAX's sharding for arrays that lie as `sharding` says."""
    shape = sharding.tiles.shape
    names: Any = tuple(_Axis(sharding, number) for number in range(len(shape)))
    mesh = jax.sharding.Mesh(np.array(devices, dtype=object).reshape(shape), names)
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names[:-1]))


def sharding_of(array: Array) -> Sharding | None:
    """How an array is split over devices; None for an array of one device."""
    mesh = getattr(array.sharding, "mesh", None)
    name = mesh.axis_names[0] if mesh is not None else None
    return name.of if isinstance(name, _Axis) else None


def devices_of(array: Array) -> Devices:
    """The devices of an array, or of its parts, in their order."""
    mesh = getattr(array.sharding, "mesh", None)
    return tuple(array.devices() if mesh is None else mesh.devices.reshape(-1))


def put(host: np.ndarray, sharding: Sharding, devices: Devices, **how: Any) -> Array:
    """A NumPy array copied to this process's devices, to each its part.

    how: of batched_device_put.
    """
    part, made = sharding.part(host.shape), []
    for device, (index, _) in zip(devices, sharding.places(host.shape), strict=True):
        if _is_local(device):
            piece = _padded(host[index], part)
            aval = core.ShapedArray(piece.shape, piece.dtype)
            on = jax.sharding.SingleDeviceSharding(device)
            made.append(xc.batched_device_put(aval, on, [piece], [device], enable_x64=True, **how))
    return joined(made, sharding.padded(host.shape), sharding, devices)


def joined(
    parts: Sequence[Array], shape: Sequence[int], sharding: Sharding, devices: Devices
) -> Array:
    """The parts on this process's devices as one array, whose padded shape is given; no copy."""
    aval = core.ShapedArray(tuple(shape), parts[0].dtype)
    name = label(sharding, devices)
    return ArrayImpl(aval, name, list(parts), committed=True, _skip_checks=True)


def local_parts(array: Array, devices: Devices) -> dict[int, Array]:
    """The parts of an array on this process's devices, by the number of the device."""
    return dict(zip(local_numbers(devices), array._arrays, strict=True))


def local_numbers(devices: Devices) -> list[int]:
    """Which of `devices` are those of this process."""
    return [number for number, device in enumerate(devices) if _is_local(device)]


def whole(array: Array, shape: Sequence[int]) -> np.ndarray:
    """A split array copied to the host, without what is padding for `shape`, once it is computed.

    Raises:
        NotAvailable: this process's devices do not have all of it.
        Whatever the program that computes it failed with on a device.
    """
    sharding = sharding_of(array)
    assert sharding is not None
    if sharding.role == "manual":
        raise NotAvailable(
            "each device has its own shard of this tensor, which no device, and not the host, has "
            "as a whole: call xs.disable_manual_sharding(t, partition_spec, full_shape) before"
        )
    parts = local_parts(array, devices_of(array))
    if sharding.is_replicated:
        return np.array(next(iter(parts.values())))
    places = sharding.places(shape)
    of_tile = {_bounds(places[number][0]): part for number, part in parts.items()}
    if len(of_tile) < len({_bounds(index) for index, _ in places}):
        raise NotAvailable(
            "parts of this tensor are on devices of other processes: read its local_shards, or, in "
            "all processes, call xs.annotate_custom_sharding(t, mesh, (None,) * t.dim()) before"
        )
    result = np.empty(tuple(shape), array.dtype)
    for index, _ in places:
        part = of_tile.pop(_bounds(index), None)
        if part is not None:
            result[index] = np.asarray(part)[tuple(slice(s.stop - s.start) for s in index)]
    return result


def _bounds(index: Sequence[slice]) -> tuple[tuple[int, int], ...]:
    return tuple((each.start, each.stop) for each in index)


def _padded(piece: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    if piece.shape == tuple(shape):
        return np.ascontiguousarray(piece).reshape(shape)  # what is 0-d stays so
    result = np.zeros(shape, piece.dtype)
    result[tuple(slice(size) for size in piece.shape)] = piece
    return result


def _is_local(device: Device) -> bool:
    return device.process_index == device.client.process_index()


def chosen(loaded: Any, on: Partitions, dims: Sequence[int]) -> list[Sharding]:
    """The shardings of a program's results, which have `dims` dimensions each.

    Raises:
        CompileError: XLA splits an argument or a result in another way than it was told.
    """
    given = _tiles_of(loaded.get_parameter_shardings(), len(on.inputs))
    for position, (wanted, tiles) in enumerate(zip(on.inputs, given, strict=True)):
        _check(wanted, tiles, f"argument {position}")
    grids = list(dict.fromkeys(each.grid for each in (*on.inputs, *on.outputs) if each))
    results = []
    found = _tiles_of(loaded.get_output_shardings(), len(dims))
    for position, (wanted, tiles) in enumerate(zip(on.outputs, found, strict=True)):
        if wanted is not None:
            _check(wanted, tiles, f"result {position}")
            results.append(wanted)
        elif tiles is None:
            results.append(on.replicated(dims[position]))
        else:
            results.append(shardings.of_tiles(tiles, grids))
    return results


def _tiles_of(protos: Any, count: int) -> list[np.ndarray | None]:
    """`Sharding.tiles` of each of the shardings that an executable tells; None: replicated."""
    listed = list(protos or ())
    if len(listed) == 1 < count:  # equal ones are told once
        listed *= count
    return [_tiles(xc.HloSharding.from_proto(proto)) for proto in listed[:count]]


def _tiles(sharding: Any) -> np.ndarray | None:
    if sharding.is_replicated():
        return None
    shape = list(sharding.tile_assignment_dimensions())
    if not sharding.replicate_on_last_tile_dim():
        shape.append(1)
    return np.array(sharding.tile_assignment_devices()).reshape(shape)


def _check(wanted: Sharding, tiles: np.ndarray | None, what: str) -> None:
    same = wanted.is_replicated if tiles is None else shardings.same_parts(wanted.tiles, tiles)
    if not same:
        raise CompileError(f"XLA does not split {what} of the program as {wanted.text()} says")
