"""Meshes and shardings of SPMD programs, over the devices of this process: one, so far.

A sharding over one device moves nothing, but it is checked and stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from xla_dynamo.compat.recording import devices
from xla_dynamo.errors import NotAvailable

PartitionSpec = tuple[Any, ...]

_specs: Any = WeakTensorKeyDictionary()  # tensor -> (mesh, partition spec)
_global_mesh: list[Mesh | None] = [None]


ShardingType = IntEnum(  # how a tensor lies on the devices
    "ShardingType", "REPLICATED MAXIMAL TUPLE TILED MANUAL PARTIAL UNKNOWN", start=0
)


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
        ids = np.array(device_ids).reshape(-1)
        assert axis_names is None or len(mesh_shape) == len(axis_names), (
            f"{len(mesh_shape)} mesh axes and {len(axis_names or ())} names"
        )
        assert len(ids) == math.prod(mesh_shape), (
            f"mesh_shape {tuple(mesh_shape)} needs {math.prod(mesh_shape)} devices, not {len(ids)}"
        )
        assert len(ids) == len(set(ids.tolist())), "device ids must differ"
        self.device_ids = ids
        self.mesh_shape = tuple(mesh_shape)
        self.axis_names = tuple(axis_names) if axis_names else None

    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.mesh_shape)

    def shape(self) -> dict[Any, int]:
        """Devices by axis."""
        names = self.axis_names or tuple(range(len(self.mesh_shape)))
        return dict(zip(names, self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> np.ndarray:
        """The device ids in the grid."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """The number of the axis `name`."""
        names = self.axis_names or ()
        return names.index(name) if name in names else None

    def __repr__(self) -> str:
        return f"Mesh({self.device_ids.tolist()}, {self.mesh_shape}, {self.axis_names})"


class HybridMesh(Mesh):
    """A mesh of slices (dcn) of chips (ici): each axis has their product."""

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        outer = dcn_mesh_shape or (1,) * len(ici_mesh_shape)
        shape = tuple(a * b for a, b in zip(ici_mesh_shape, outer, strict=True))
        self.ici_mesh_shape, self.dcn_mesh_shape = tuple(ici_mesh_shape), tuple(outer)
        super().__init__(np.arange(math.prod(shape)), shape, axis_names)


def set_global_mesh(mesh: Mesh) -> None:
    """Make a mesh the default of those who ask for one."""
    _global_mesh[0] = mesh


def get_global_mesh() -> Mesh | None:
    """What set_global_mesh set."""
    return _global_mesh[0]


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices along one axis."""
    count = devices.count()
    return Mesh(np.arange(count), (count,), (axis_name,) if axis_name else None)


@dataclass
class ShardingSpec:
    """Which mesh axis each dimension of a tensor is split over; None: not split.

    minibatch: the loader gives each host its own batch, dimension 0 of the whole.
    """

    mesh: Mesh
    partition_spec: PartitionSpec
    minibatch: bool = False

    def can_apply(self, t: torch.Tensor) -> bool:
        """Whether the tensor has the dimensions of the specification."""
        return t.dim() == len(self.partition_spec)

    def apply(self, t: torch.Tensor) -> None:
        """mark_sharding of `t`."""
        mark_sharding(t, self.mesh, self.partition_spec)


def mark_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Say how a tensor is split over a mesh; gives the tensor.

    Raises:
        NotAvailable: the mesh has more than one device.
        ValueError: the specification names axes that the mesh lacks, or misses dimensions.
    """
    if mesh.size() > 1:
        raise NotAvailable(
            f"{mesh} has {mesh.size()} devices, and sharding over several is not supported yet: "
            "build the mesh from xr.global_runtime_device_count() with CPU_NUM_DEVICES=1"
        )
    if len(partition_spec) != t.dim():
        raise ValueError(f"{partition_spec} does not specify the {t.dim()} dimensions of a tensor")
    for name in _axes(partition_spec):
        known = isinstance(name, int) or mesh.get_axis_name_idx(name) is not None
        if not known:
            raise ValueError(f"{name!r} is not an axis of {mesh}")
    _specs[t] = (mesh, tuple(partition_spec))
    return t


def _axes(partition_spec: PartitionSpec) -> list[Any]:
    flat = [p if isinstance(p, (tuple, list)) else (p,) for p in partition_spec]
    return [name for group in flat for name in group if name is not None]


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    """mark_sharding that gradients flow through; gives a new tensor."""
    return mark_sharding(t.view_as(t), mesh, partition_spec)


class MarkShardingFunction:
    """`MarkShardingFunction.apply(...)` is mark_sharding_with_gradients."""

    apply = staticmethod(mark_sharding_with_gradients)


annotate_custom_sharding = mark_sharding


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Forget how a tensor is split."""
    _specs.pop(t, None)
    return t


def sharding_of(t: torch.Tensor) -> tuple[Mesh, PartitionSpec] | None:
    """What mark_sharding said of a tensor."""
    return _specs.get(t)


def shard_as(a: Any, b: Any) -> tuple[Any, Any]:
    """Split two trees of tensors alike: one device has nothing to split."""
    return a, b


def wrap_if_sharded(x: Any) -> Any:
    """A tensor itself: shardings are beside it."""
    return x


wrap_as_sharded_tensor = unwrap_sharded_tensor = wrap_if_sharded


def enable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, *, mesh: Mesh | None = None
) -> torch.Tensor:
    """This device's shard of a tensor: all of it."""
    return mark_sharding(t, mesh or get_global_mesh() or get_1d_mesh(), partition_spec)


def disable_manual_sharding(
    t: torch.Tensor,
    partition_spec: PartitionSpec,
    full_shape: torch.Size,
    *,
    mesh: Mesh | None = None,
) -> torch.Tensor:
    """The tensor of which this is the shard: itself."""
    return mark_sharding(t, mesh or get_global_mesh() or get_1d_mesh(), partition_spec)


def xla_patched_nn_linear_forward(m: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """A Linear's forward, which kept dimensions apart for the partitioner."""
    return torch.nn.functional.linear(input, m.weight, m.bias)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module, *_: Any) -> torch.nn.Module:
    """Nothing: Linear's own forward is right for one device."""
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> None:
    """Nothing: there is no communication to keep in order."""
