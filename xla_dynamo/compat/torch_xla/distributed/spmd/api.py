"""torch.distributed.tensor's functions on xla devices, of which there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import runtime as xr
from ._meshes import Mesh
from .xla_sharding import mark_sharding


def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """A DeviceMesh as a Mesh."""
    return Mesh(dt_mesh.mesh.flatten().tolist(), tuple(dt_mesh.mesh.shape), dt_mesh.mesh_dim_names)


def convert_to_xla_partition_spec(
    tensor: torch.Tensor, placements: Sequence[Any]
) -> tuple[int | None, ...]:
    """For each dimension of a tensor the mesh axis that splits it, or None."""
    spec: list[int | None] = [None] * tensor.dim()
    for axis, placement in enumerate(placements):
        if placement.is_shard():
            spec[placement.dim] = axis
    return tuple(spec)


def xla_distribute_tensor(
    tensor: torch.Tensor, device_mesh: Any, placements: Sequence[Any] | None = None
) -> torch.Tensor:
    """A tensor on the device, split as the placements say: here whole."""
    mesh = device_mesh if isinstance(device_mesh, Mesh) else convert_to_xla_mesh(device_mesh)
    return mark_sharding(
        tensor.to("xla"), mesh, convert_to_xla_partition_spec(tensor, placements or ())
    )


def xla_distribute_module(
    module: torch.nn.Module,
    device_mesh: Any = None,
    partition_fn: Callable[..., None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> torch.nn.Module:
    """A module on the device, each submodule handed to `partition_fn(name, module, mesh)`."""
    if partition_fn is auto_policy:
        xr.use_spmd(auto=True)
    module.to("xla")
    if partition_fn is not None:
        for name, child in module.named_modules():
            partition_fn(name, child, device_mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda _, inputs: input_fn(inputs, device_mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda _, inputs, outputs: output_fn(outputs, device_mesh))
    return module


def auto_policy(mod_name: str, mod: torch.nn.Module, mesh: Any) -> None:
    """As `partition_fn`: parameters, and inputs, are split as after `xr.use_spmd(auto=True)`."""
