"""Fully sharded data parallelism by SPMD shardings: parameters are split over the axis "fsdp".

XLA's partitioner gathers a parameter where it is used, as the batch is split over the same axis.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..distributed.fsdp import wrap
from ..distributed.fsdp._wrapper import Wrapper
from ..distributed.spmd import xla_sharding


class SpmdFullyShardedDataParallel(Wrapper):
    """Wraps a module whose parameters are split over the mesh axis "fsdp", those not split yet.

    Args:
        mesh: default: the global one.
        shard_output: called with the output of forward and the mesh; default: splits the first
            dimension of the output, or of the first one of a tuple.
        auto_wrap_policy: which submodules are wrapped on their own.
        auto_wrapper_callable: what wraps them, called as (module, **kwargs).
        extra_data_axis: an axis that splits the output further.

    Raises:
        ValueError: there is no mesh, or it has no such axis; with a policy, a submodule is wrapped.
        RuntimeError: the module is wrapped already, or cannot be called.
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
        if extra_data_axis and extra_data_axis not in (mesh.axis_names or ()):
            raise ValueError(f"The provided {extra_data_axis} axis is not in the mesh.")
        super().__init__(module)
        if auto_wrap_policy is not None:
            _refuse_wrapped(module)
            wrapper = auto_wrapper_callable or SpmdFullyShardedDataParallel
            more = {"mesh": mesh, "shard_output": shard_output}
            wrap.recursive_wrap(module, auto_wrap_policy, wrapper, True, **more)
        module.to("xla")
        self._mesh, self._axis = mesh, extra_data_axis
        self._shard_output = shard_output or self._split_output
        for parameter in module.parameters():
            if xla_sharding.sharding_of(parameter) is None:
                longest = max(range(parameter.dim()), key=parameter.size, default=0)
                spec = _spec(parameter.dim(), longest, "fsdp")
                xla_sharding.mark_sharding(parameter, mesh, spec)

    @property
    def _orig_module(self) -> torch.nn.Module:
        """torch_xla's name of the wrapped module."""
        return self.module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward; its output is handed to `shard_output`."""
        output = self.module(*args, **kwargs)
        self._shard_output(output, self._mesh)
        return output

    def _split_output(self, output: Any, mesh: xla_sharding.Mesh) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(first, torch.Tensor):
            raise RuntimeError(
                f"The output type is not supported: {type(output)}. Please provide your own "
                "shard_output callable."
            )
        if first is not output:
            warnings.warn(
                "The output is a tuple, but only the first element is sharded. If this is not "
                "intended, please provide your own shard_output callable.",
                stacklevel=3,
            )
        if mesh.size() == 1:
            return
        axes: Any = (self._axis, "fsdp") if self._axis else "fsdp"
        xla_sharding.mark_sharding(first, mesh, _spec(first.dim(), 0, axes))


def _refuse_wrapped(module: torch.nn.Module) -> None:
    for name, child in module.named_modules():
        if isinstance(child, SpmdFullyShardedDataParallel):
            raise ValueError(
                f"Expected {name} to NOT be SpmdFullyShardedDataParallel if using an "
                "`auto_wrap_policy`"
            )


def _spec(dims: int, split: int, axes: Any) -> tuple[Any, ...]:
    return tuple(axes if dim == split else None for dim in range(dims))
