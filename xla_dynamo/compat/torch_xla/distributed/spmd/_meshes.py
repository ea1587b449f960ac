"""Meshes: devices in a grid with named axes, and partition specifications that name them."""

from __future__ import annotations

import ast
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xla_dynamo.backend.runtime.shardings import Grid, Sharding
from xla_dynamo.compat.execution import spmd
from xla_dynamo.compat.recording import devices
from xla_dynamo.lazily import lazily

from ..._sharding import OpSharding, of_sharding

PartitionSpec = tuple[Any, ...]

if TYPE_CHECKING:
    from jax.experimental import mesh_utils
else:
    mesh_utils = lazily("jax.experimental.mesh_utils", globals())

_global_mesh: list[Mesh | None] = [None]


class Mesh:
    """Devices in a grid with named axes.

    Raises:
        AssertionError: shape, ids and names do not fit together.
    """

    def __init__(
        self,
        device_ids: np.ndarray | Sequence[int],
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ) -> None:
        ids, size = np.array(device_ids).reshape(-1), math.prod(mesh_shape)
        if spmd.where() is not None:
            count = len(devices.everywhere())
            assert len(ids) == count, (
                f"Number of device IDs ({len(ids)}) must match the global number of devices "
                f"({count})"
            )
        if axis_names is not None:
            assert len(mesh_shape) == len(axis_names), (
                f"Number of axis names ({len(axis_names)}) must match mesh dimensions "
                f"({len(mesh_shape)})"
            )
            assert len(set(axis_names)) == len(axis_names), (
                f"Axis names must be unique, got: {axis_names}"
            )
        assert len(ids) == size, (
            f"Number of device IDs ({len(ids)}) must match mesh size ({size}), mesh_shape is "
            f"{tuple(mesh_shape)}"
        )
        assert len(ids) == len(np.unique(ids)), f"Device IDs must be unique, got: {ids}"
        assert (ids < size).all(), f"Device IDs must be less than mesh size ({size}), got: {ids}"
        self.device_ids = ids
        self.mesh_shape = tuple(mesh_shape)
        self.axis_names = tuple(axis_names) if axis_names else None
        self._op_shardings: dict[PartitionSpec, OpSharding] = {}

    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.mesh_shape)

    def shape(self) -> OrderedDict[Any, int]:
        """Devices by axis."""
        names = self.axis_names or tuple(range(len(self.mesh_shape)))
        return OrderedDict(zip(names, self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> np.ndarray:
        """The device ids in the grid."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """The number of the axis `name`."""
        names = self.axis_names or ()
        return names.index(name) if name in names else None

    def get_op_sharding(self, partition_spec: PartitionSpec) -> OpSharding:
        """The sharding of a tensor whose dimensions are split over the axes that are named.

        Raises:
            AssertionError: an axis is none of the mesh's, or occurs twice.
            ValueError: a name is none of an axis.
        """
        if partition_spec not in self._op_shardings:
            axes = _flat(self.axes(partition_spec))
            assert all(0 <= axis < len(self.mesh_shape) for axis in axes), (
                f"partition_spec ({partition_spec}) contains out of bound index into mesh_shape."
            )
            assert len(axes) == len(set(axes)), (
                "Each device mesh dimension should appear at most once in partition_spec "
                f"{partition_spec}."
            )
            numbers = self.axes(partition_spec)
            dims = tuple(() if p is None else p if isinstance(p, tuple) else (p,) for p in numbers)
            self._op_shardings[partition_spec] = of_sharding(Sharding(self._grid(), dims))
        return self._op_shardings[partition_spec]

    def _grid(self) -> Grid:
        names = self.axis_names or tuple(f"axis{i}" for i in range(len(self.mesh_shape)))
        shape = tuple(int(size) for size in self.mesh_shape)
        return Grid(shape, tuple(names), tuple(int(device) for device in self.device_ids))

    def axes(self, partition_spec: PartitionSpec) -> PartitionSpec:
        """The specification with numbers of axes for names.

        Raises:
            ValueError: a name is none of an axis, or something is no name at all.
        """
        return tuple(self._axis(part) for part in partition_spec)

    def _axis(self, part: Any) -> Any:
        if part is None or type(part) is int:
            return part
        if isinstance(part, (tuple, list)):
            nested = any(isinstance(each, tuple) for each in part)
            assert not nested, "Partition spec cannot contain nested tuples"
            return self.axes(tuple(part))
        if not isinstance(part, str):
            raise ValueError(f"Spec type {type(part)} is not supported in partition spec")
        number = self.get_axis_name_idx(part)
        if number is None:
            raise ValueError(f"Axis name {part} is not defined in the given mesh: {self}")
        return number

    def __str__(self) -> str:
        return (
            f"{{'device_ids': {self.device_ids.tolist()}, 'mesh_shape': {self.mesh_shape}, "
            f"'axis_names': {self.axis_names}}}"
        )

    def __repr__(self) -> str:
        return f"Mesh({self.device_ids.tolist()}, {self.mesh_shape}, {self.axis_names})"

    @classmethod
    def from_str(cls, mesh_str: str) -> Mesh | None:
        """The mesh that `str` wrote; None for other text."""
        try:
            read = ast.literal_eval(mesh_str.replace("Mesh", ""))
            return cls(read["device_ids"], read["mesh_shape"], read["axis_names"])
        except (ValueError, SyntaxError, KeyError, TypeError):
            return None


def _flat(partition_spec: PartitionSpec) -> list[int]:
    groups = [part if isinstance(part, tuple) else (part,) for part in partition_spec]
    return [axis for group in groups for axis in group if axis is not None]


class HybridMesh(Mesh):
    """A mesh of slices (dcn) of chips (ici): each axis has their product.

    On TPUs devices are in the order in which neighbours in the mesh are neighbours in the torus.

    Raises:
        ValueError: several slices, where there is one.
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        outer = dcn_mesh_shape or (1,) * len(ici_mesh_shape)
        assert len(ici_mesh_shape) == len(outer)
        everywhere = devices.everywhere()
        slices = len({getattr(device, "slice_index", 0) for device in everywhere})
        if math.prod(outer) > 1 and slices == 1:
            raise ValueError("Invalid dcn_mesh_shape for single slice mesh")
        if math.prod(outer) == 1 and slices > 1:
            raise ValueError("Provide dcn_mesh_shape to create a mesh for multislice")
        shape = tuple(a * b for a, b in zip(ici_mesh_shape, outer, strict=True))
        self.ici_mesh_shape, self.dcn_mesh_shape = tuple(ici_mesh_shape), tuple(outer)
        if devices.hardware() != "TPU":
            order = np.arange(math.prod(shape))
        else:
            order = _near_in_the_torus(everywhere, self.ici_mesh_shape, self.dcn_mesh_shape)
        super().__init__(order, shape, axis_names)


def _near_in_the_torus(
    everywhere: Sequence[Any], inner: Sequence[int], outer: Sequence[int]
) -> np.ndarray:
    """The numbers of TPUs, in the order of a mesh that suits their network."""
    if math.prod(outer) > 1:
        grid = mesh_utils.create_hybrid_device_mesh(inner, outer, devices=everywhere)
    else:
        grid = mesh_utils.create_device_mesh(
            inner, devices=everywhere, allow_split_physical_axes=True
        )
    number = {device: i for i, device in enumerate(everywhere)}
    return np.array([number[device] for device in grid.reshape(-1)])


def set_global_mesh(mesh: Mesh) -> None:
    """Make a mesh the default of those who ask for one."""
    _global_mesh[0] = mesh


def get_global_mesh() -> Mesh | None:
    """What set_global_mesh set."""
    return _global_mesh[0]


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices along one axis."""
    count = len(devices.everywhere())
    return Mesh(np.arange(count), (count,), (axis_name,) if axis_name else None)
