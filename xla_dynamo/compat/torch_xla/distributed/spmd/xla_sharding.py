"""Tensors marked with shardings: how programs are partitioned over the devices.

A sharding over one device moves nothing, but it is checked and stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from xla_dynamo.backend.ops.sharding import MARK
from xla_dynamo.compat.execution import spmd
from xla_dynamo.compat.kernels import sharding as kernel
from xla_dynamo.errors import NotAvailable

from ... import runtime as xr
from ..._sharding import OpSharding as OpSharding
from ..._sharding import ShardingType as ShardingType
from ..._sharding import annotate, clear, mark, mark_as_shard, plain, sharding_of, to_full, to_shard
from ._meshes import HybridMesh as HybridMesh
from ._meshes import Mesh as Mesh
from ._meshes import PartitionSpec as PartitionSpec
from ._meshes import get_1d_mesh as get_1d_mesh
from ._meshes import get_global_mesh as get_global_mesh
from ._meshes import set_global_mesh as set_global_mesh
from .xla_sharded_tensor import XLAShardedTensor


@dataclass
class ShardingSpec:
    """Which mesh axis each dimension of a tensor is split over; None: not split.

    minibatch: the loader gives each process its own batch: rows of the whole, dimension 0.
    """

    mesh: Mesh
    partition_spec: PartitionSpec
    minibatch: bool = False

    def can_apply(self, t: torch.Tensor) -> bool:
        """Whether the tensor has the dimensions of the specification."""
        return t.dim() == len(self.partition_spec)

    def apply(self, t: torch.Tensor) -> None:
        """mark_sharding of `t`.

        Raises:
            RuntimeError: a minibatch that the devices of this host cannot share out evenly.
            NotAvailable: a minibatch of one of several processes, which `t` is not all of.
        """
        own = xr.addressable_runtime_device_count()
        if self.takes_parts:
            raise NotAvailable(
                "minibatch=True with several processes makes larger tensors of what the loaders "
                "give: pass it as input_sharding of MpDeviceLoader or send_cpu_data_to_device"
            )
        if self.minibatch and _is_spmd() and t.shape[0] % own:
            raise RuntimeError(
                "When minibatch is configured, the per-host batch size must be divisible by local "
                f"runtime device count. Per host input data shape = {tuple(t.shape)}, local devices"
                f" = {own}"
            )
        _mark(t, self.mesh, self.partition_spec)

    @property
    def takes_parts(self) -> bool:
        """Whether a tensor of this process's is a part of that over all devices: see `joined`."""
        return self.minibatch and xr.process_count() > 1

    def joined(self, part: torch.Tensor) -> torch.Tensor:
        """The tensor over all devices whose rows on those of this process are a CPU tensor's.

        Raises:
            RuntimeError: it has not the rows of this process's devices, in equal parts.
        """
        sharding = _op_sharding(part, self.mesh, self.partition_spec)
        whole = kernel.of_rows(part, sharding.sharding(part.dim()), xr.process_count())
        mark(whole, sharding)
        return whole


def mark_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> XLAShardedTensor:
    """Say how a tensor is split over a mesh; gives it as an XLAShardedTensor.

    Raises:
        NotAvailable: the mesh has not all devices.
        RuntimeError: the tensor is split in another way already.
        AssertionError: the specification misses dimensions, or names axes twice.
        ValueError: it names axes that the mesh lacks.
    """
    if torch.compiler.is_compiling():
        if not _is_spmd():  # over one device a program is the same
            return t  # pyright: ignore[reportReturnType]
        raise NotAvailable(
            "xs.mark_sharding changes a tensor, which no graph can express: call "
            "xs.mark_sharding_with_gradients in a function that is compiled, or fullgraph=False"
        )
    _mark(t, mesh, partition_spec)
    if not isinstance(t, XLAShardedTensor):
        return XLAShardedTensor(t, mesh.mesh_shape, tuple(partition_spec))
    return wrap_as_sharded_tensor(t, mesh.mesh_shape, tuple(partition_spec))


def _mark(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> None:
    mark(t, _op_sharding(t, mesh, partition_spec))


def _op_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> OpSharding:
    assert t.dim() == len(partition_spec), (
        f"Partition spec length ({len(partition_spec)}) should be equal to the input rank "
        f"({t.dim()})."
    )
    return mesh.get_op_sharding(tuple(partition_spec))


def _is_spmd() -> bool:
    """Whether programs are partitioned over several devices."""
    return spmd.where() is not None


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    """mark_sharding that gradients flow through, marked alike; gives a new tensor."""
    if _is_spmd():
        sharding = _op_sharding(t, mesh, partition_spec).sharding(t.dim())
        return _Marked.apply(plain(t), sharding.attribute())  # pyright: ignore
    result = plain(t).view_as(plain(t))
    if not torch.compiler.is_compiling():
        _mark(result, mesh, partition_spec)
    return result


class _Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, sharding: str) -> torch.Tensor:  # pyright: ignore
        ctx.sharding = sharding
        return MARK(t, sharding)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore
        return MARK(gradient, ctx.sharding), None


class MarkShardingFunction:
    """`MarkShardingFunction.apply(...)` is mark_sharding_with_gradients."""

    apply = staticmethod(mark_sharding_with_gradients)


def annotate_custom_sharding(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> XLAShardedTensor:
    """mark_sharding that only tells the program: an array stays as it lies on the devices."""
    annotate(t, _op_sharding(t, mesh, partition_spec))
    return wrap_as_sharded_tensor(t, mesh.mesh_shape, tuple(partition_spec))


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Forget how a tensor is split; gives the tensor that was marked."""
    clear(t)
    return plain(t)


def shard_as(a: Any, b: Any) -> tuple[Any, Any]:
    """Split two trees of tensors alike: one device has nothing to split."""
    return a, b


def wrap_as_sharded_tensor(
    t: torch.Tensor, mesh_shape: Any = None, partition_spec: PartitionSpec | None = None
) -> XLAShardedTensor:
    """A tensor as an XLAShardedTensor; one that is one is changed."""
    if not isinstance(t, XLAShardedTensor):
        return XLAShardedTensor(t, mesh_shape, partition_spec)
    if mesh_shape is not None:
        t.mesh_shape = mesh_shape
    if partition_spec is not None:
        t.partition_spec = partition_spec
    t.invalidate_spec_cache()
    return t


def wrap_if_sharded(x: Any) -> Any:
    """A tensor that was marked as an XLAShardedTensor; all else as it is."""
    if not isinstance(x, torch.Tensor) or isinstance(x, XLAShardedTensor):
        return x
    return x if sharding_of(x) is None else XLAShardedTensor(x)


def unwrap_sharded_tensor(t: torch.Tensor) -> torch.Tensor:
    """The tensor of an XLAShardedTensor."""
    return plain(t)


def _mark_manual_sharding(t: torch.Tensor) -> XLAShardedTensor:
    """A result that is pending, as a shard.

    Raises:
        RuntimeError: the tensor is not pending.
    """
    return wrap_as_sharded_tensor(mark_as_shard(t))


def enable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, *, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """This device's shard of a tensor, which is split as by mark_sharding.

    What is computed of it is each device's own: XLA inserts no collectives, and those that are
    called are among the devices. Gradients are those of the whole tensors.
    """
    mesh = mesh or get_global_mesh() or get_1d_mesh()
    whole = mark_sharding(t, mesh, partition_spec).global_tensor
    return wrap_as_sharded_tensor(to_shard(whole), mesh.mesh_shape, tuple(partition_spec))


def disable_manual_sharding(
    t: torch.Tensor,
    partition_spec: PartitionSpec,
    full_shape: torch.Size,
    *,
    mesh: Mesh | None = None,
) -> XLAShardedTensor:
    """The tensor of which this is the shard; where it is replicated, that of any device.

    Raises:
        RuntimeError: the tensor is no shard, or of another shape than one.
    """
    mesh = mesh or get_global_mesh() or get_1d_mesh()
    shape = mesh.mesh_shape, tuple(partition_spec)
    sharding = mesh.get_op_sharding(tuple(partition_spec))
    shard = _mark_manual_sharding(t).global_tensor
    full = to_full(shard, sharding, full_shape, t.dtype)
    return wrap_as_sharded_tensor(full, *shape)


class XLAPatchedLinear:
    """`XLAPatchedLinear.apply` is a linear layer that kept dimensions apart for the partitioner."""

    apply = staticmethod(torch.nn.functional.linear)


def xla_patched_nn_linear_forward(m: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """A Linear's forward by XLAPatchedLinear."""
    return torch.nn.functional.linear(input, m.weight, m.bias)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module, *_: Any) -> torch.nn.Module:
    """Nothing: Linear's own forward is right for one device."""
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> None:
    """Nothing: there is no communication to keep in order."""
