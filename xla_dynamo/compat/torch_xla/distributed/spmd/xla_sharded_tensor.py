"""Tensors sharded over devices; over one device, a tensor is its own only shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from xla_dynamo.compat.recording import devices
from xla_dynamo.compat.values.torch_private import dtensor_spec, no_torch_dispatch

from ..._sharding import (
    ShardingType,
    annotate,
    load_local_shards,
    local_shards,
    mark,
    plain,
    replicas_and_indices,
    sharding_of,
    spec_of,
    type_of,
)
from ._meshes import Mesh, PartitionSpec

_NO_PLACEMENTS = (
    "Placements not available: XLAShardedTensor requires mesh_shape and "
    "partition_spec to be set. Use mark_sharding() to properly initialize sharding information."
)


@dataclass
class XLAShard:
    """The part of a tensor on one device, copied to the CPU; `...` are the indices of all of it."""

    data: torch.Tensor
    indices: EllipsisType | list[slice]
    shard_device: str
    replica_id: int

    @property
    def unpadded_data(self) -> torch.Tensor:
        """The part without padding."""
        return self.data[self._own()]

    @unpadded_data.setter
    def unpadded_data(self, t: torch.Tensor) -> None:
        self.data[self._own()] = t

    def _own(self) -> Any:
        if isinstance(self.indices, EllipsisType):
            return ...
        return tuple(slice(index.stop - index.start) for index in self.indices)


class XLAShardedTensor(DTensor):
    """A tensor with its sharding; shares memory and gradients with the tensor that was marked.

    Results of ops on it are XLAShardedTensors too, of unknown sharding, as in torch_xla.

    mesh_shape, partition_spec: what mark_sharding was given.
    """

    mesh_shape: Sequence[int] | None
    partition_spec: PartitionSpec | None
    _cached_spec: Any
    _marked: torch.Tensor | None

    # Ops are those of the tensor itself: no op is DTensor's.
    __torch_dispatch__ = no_torch_dispatch  # pyright: ignore
    __torch_function__ = classmethod(torch.Tensor.__torch_function__.__func__)  # type: ignore

    @property
    def __tensor_flatten__(self) -> Any:
        raise AttributeError("no wrapper: for Dynamo an ordinary tensor")

    @staticmethod
    def __new__(  # pyright: ignore
        cls: type,
        elem: torch.Tensor,
        mesh_shape: Sequence[int] | None = None,
        partition_spec: PartitionSpec | None = None,
        *args: Any,
        requires_grad: bool = False,
        **kwargs: Any,
    ) -> XLAShardedTensor:
        shared: Any = elem.detach() if requires_grad else elem
        made = shared.as_subclass(cls)
        made.requires_grad_() if requires_grad else None
        made._marked = plain(elem)
        made.mesh_shape = mesh_shape or getattr(elem, "mesh_shape", None)
        made.partition_spec = partition_spec or getattr(elem, "partition_spec", None)
        made._cached_spec = None
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # __new__ has made it

    @property
    def global_tensor(self) -> torch.Tensor:
        """The whole tensor: the one that was marked."""
        marked = self.__dict__.get("_marked")
        return self.as_subclass(torch.Tensor) if marked is None else marked  # type: ignore

    @property
    def local_shards(self) -> list[XLAShard]:
        """The shard of each device."""
        placed = zip(
            local_shards(self.global_tensor), replicas_and_indices(self.global_tensor), strict=True
        )
        return [
            XLAShard(data, indices, name, replica) for (data, name), (replica, indices) in placed
        ]

    def load_local_shards_(self, shards: Sequence[XLAShard]) -> None:
        """Let each device of this process have another shard.

        Raises:
            RuntimeError: the tensor is replicated, as over one device all are; or shards are
                missing, or of another shape.
        """
        names = [shard.shard_device for shard in shards]
        load_local_shards(self.global_tensor, [shard.data for shard in shards], names)
        self.invalidate_spec_cache()

    @property
    def sharding_spec(self) -> str:
        """The sharding as HLO writes it."""
        return spec_of(self)

    @property
    def sharding_type(self) -> ShardingType:
        """The sharding's type."""
        return ShardingType(type_of(self) or 0)

    @property
    def _spec(self) -> Any:  # pyright: ignore
        """The sharding as DTensor knows it."""
        cached = self.__dict__.get("_cached_spec")
        if cached is None:
            cached = self._cached_spec = self._dtensor_spec()
        return cached

    def _dtensor_spec(self) -> Any:
        shape, spec = self.__dict__.get("mesh_shape"), self.__dict__.get("partition_spec")
        if shape is None or spec is None:
            missing = "mesh_shape" if shape is None else "partition_spec"
            raise ValueError(
                f"{missing} must be specified to create DTensorSpec. If this tensor was created "
                "through torch operations, it may be auto-wrapped. Use wrap_as_sharded_tensor() "
                f"to set {missing} before accessing _spec."
            )
        numbers = torch.arange(len(devices.everywhere()), device="cpu")
        mesh = DeviceMesh("xla", numbers.reshape(tuple(shape)))
        split = [spec.index(axis) if axis in spec else None for axis in range(len(shape))]
        placements = [Replicate() if dim is None else Shard(dim) for dim in split]
        return dtensor_spec(mesh, placements, self.global_tensor)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How each axis of the mesh splits the tensor.

        Raises:
            ValueError: the tensor was not marked.
        """
        try:
            return self._spec.placements
        except ValueError as error:
            raise ValueError(_NO_PLACEMENTS) from error

    def invalidate_spec_cache(self) -> None:
        """Make `_spec` anew when it is asked for."""
        self._cached_spec = None

    def redistribute(  # pyright: ignore
        self, device_mesh: Mesh, placements: Sequence[Placement], *, async_op: bool = False
    ) -> XLAShardedTensor:
        """The tensor split as `placements` say.

        Raises:
            ValueError: not one placement for each axis.
            NotImplementedError: a partial placement.
            IndexError: a dimension that the tensor lacks.
        """
        if len(placements) != len(device_mesh.mesh_shape):
            raise ValueError(
                f"Number of placements ({len(placements)}) must match mesh dimensions "
                f"({len(device_mesh.mesh_shape)})"
            )
        spec: list[int | None] = [None] * self.dim()
        for axis, placement in enumerate(placements):
            if isinstance(placement, Partial):
                raise NotImplementedError("Partial placement: use Shard or Replicate placements")
            if isinstance(placement, Shard):
                if placement.dim >= self.dim():
                    raise IndexError(
                        f"Shard dimension {placement.dim} is out of bounds for tensor with "
                        f"{self.dim()} dimensions"
                    )
                spec[placement.dim] = axis
        result = self.global_tensor.clone() if async_op else self.global_tensor
        annotate(result, device_mesh.get_op_sharding(tuple(spec)))
        return XLAShardedTensor(result, device_mesh.mesh_shape, tuple(spec))

    def __deepcopy__(self, memo: dict[int, Any]) -> XLAShardedTensor:
        whole = self.global_tensor.__deepcopy__(memo)
        sharding = sharding_of(self)
        if sharding is not None:
            mark(whole, sharding)
        return XLAShardedTensor(
            whole, self.__dict__.get("mesh_shape"), self.__dict__.get("partition_spec")
        )

    def __repr__(self, **kwargs: Any) -> str:  # pyright: ignore
        return f"XLAShardedTensor({self.global_tensor})"

    def __format__(self, spec: str) -> str:
        return format(self.global_tensor, spec) if spec else repr(self)
