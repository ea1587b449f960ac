"""Fully sharded data parallelism over one replica: a module that keeps its parameters whole.

What changes the computation is done: compute_dtype, buffer_dtype, wrapping by policy, gradient
clipping. What spreads it over replicas has nothing to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import wrap

_INNER = "_fsdp_wrapped_module"


class XlaFullyShardedDataParallel(torch.nn.Module):
    """Wraps a module; its state_dict has the names of the module's own.

    Args:
        module: what to wrap.
        compute_dtype: dtype of parameters and inputs in forward; default: their own.
        buffer_dtype: dtype of floating-point buffers; default: their own.
        auto_wrap_policy: which submodules are wrapped on their own.
        auto_wrapper_callable: what wraps them, called as (module, **kwargs).

    Raises:
        RuntimeError: the module is wrapped already.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        reshard_after_forward: bool = True,
        flatten_parameters: bool = False,
        execute_sharding_on_init: bool = True,
        optimization_barrier_in_forward: bool = True,
        optimization_barrier_in_backward: bool = True,
        sync_on_finalization: bool = False,
        disable_reshard_on_root: bool = True,
        compute_dtype: torch.dtype | None = None,
        buffer_dtype: torch.dtype | None = None,
        fp32_reduce_scatter: bool = False,
        *sharding: Any,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., torch.nn.Module] | None = None,
        **more: Any,
    ) -> None:
        if isinstance(module, XlaFullyShardedDataParallel):
            raise RuntimeError(
                "Cannot wrap a module that is already wrapped with FSDP. For nested FSDP, first "
                "wrap the inner child modules before wrapping the outer parent module."
            )
        super().__init__()
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or XlaFullyShardedDataParallel
            wrap.recursive_wrap(
                module, auto_wrap_policy, wrapper, True, compute_dtype=compute_dtype
            )
        module.to("xla")
        if buffer_dtype is not None:
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(buffer_dtype)
        self.compute_dtype = compute_dtype
        self.rank, self.world_size = 0, 1
        setattr(self, _INNER, module)
        self._register_state_dict_hook(_unprefix)
        self.register_load_state_dict_pre_hook(_prefix)

    @property
    def module(self) -> torch.nn.Module:
        """The wrapped module."""
        return self._modules[_INNER]  # type: ignore[return-value]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, in compute_dtype."""
        dtype = self.compute_dtype
        if dtype is None:
            return self.module(*args, **kwargs)

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        parameters = {name: cast(p) for name, p in self.module.named_parameters()}
        args, kwargs = pytree.tree_map_only(torch.Tensor, cast, (args, kwargs))
        return torch.func.functional_call(self.module, parameters, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules[_INNER], name)

    def __getitem__(self, key: int) -> torch.nn.Module:
        return self.module[key]  # type: ignore[index]

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, groups: Any = None
    ) -> torch.Tensor:
        """Scale the gradients so that their norm is at most `max_norm`; the norm before."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return norm.to("xla")  # without gradients it is a zero of the CPU's

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose gradients are not reduced over the replicas: none are."""
        yield

    def get_shard_metadata(self) -> dict[str, Any]:
        """What consolidation of checkpoints needs: that this one is whole."""
        return {
            "shard_info": {},
            "flatten_info": {},
            "buffer_info": {name: tuple(b.shape) for name, b in self.module.named_buffers()},
            "world_size": 1,
            "rank": 0,
        }

    def get_original_names_and_sharded_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Parameters by the names that they have in the wrapped module."""
        return list(self.module.named_parameters())


def _unprefix(module: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    inner = f"{prefix}{_INNER}."
    for name in [name for name in state if name.startswith(inner)]:
        state[prefix + name.removeprefix(inner)] = state.pop(name)


def _prefix(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    inner = f"{prefix}{_INNER}."
    for name in [n for n in state if n.startswith(prefix) and not n.startswith(inner)]:
        state[inner + name.removeprefix(prefix)] = state.pop(name)
