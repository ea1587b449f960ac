"""Fully sharded data parallelism by SPMD shardings: over one device, a module as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..distributed.fsdp import wrap
from ..distributed.fsdp.xla_fully_sharded_data_parallel import (
    XlaFullyShardedDataParallel,
)
from ..distributed.spmd import xla_sharding


class SpmdFullyShardedDataParallel(XlaFullyShardedDataParallel):
    """Wraps a module whose parameters are split over the mesh axis "fsdp".

    Raises:
        ValueError: there is no mesh, or it has no such axis.
        NotAvailable: the mesh has several devices.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        mesh: xla_sharding.Mesh | None = None,
        shard_output: Callable[[Any, Any], None] | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., torch.nn.Module] | None = None,
        extra_data_axis: str | None = None,
    ) -> None:
        mesh = mesh or xla_sharding.get_global_mesh()
        if mesh is None:
            raise ValueError(
                "No mesh is provided and no global mesh is set. Please provide a mesh."
            )
        if "fsdp" not in (mesh.axis_names or ()):
            raise ValueError("The mesh must have an axis named 'fsdp'.")
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or SpmdFullyShardedDataParallel
            wrap.recursive_wrap(module, auto_wrap_policy, wrapper, True, mesh=mesh)
        super().__init__(module)
        self._mesh = mesh
        self._shard_output = shard_output
        for parameter in module.parameters():
            spec = ("fsdp", *[None] * (parameter.dim() - 1)) if parameter.dim() else ()
            xla_sharding.mark_sharding(parameter, mesh, spec)

    @property
    def _orig_module(self) -> torch.nn.Module:
        """torch_xla's name of the wrapped module."""
        return self.module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward; its output is handed to `shard_output`."""
        output = super().forward(*args, **kwargs)
        if self._shard_output is not None:
            self._shard_output(output, self._mesh)
        return output
