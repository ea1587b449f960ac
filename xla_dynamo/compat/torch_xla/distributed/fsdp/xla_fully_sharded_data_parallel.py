"""Fully sharded data parallelism: each replica keeps a part of each parameter.

Forward gathers the parameters of a module when it is called, backward gathers them again, and the
gradients are averaged over the replicas, each of which gets its part. So an optimizer, made after
the wrapping, holds and updates parts. With one replica a module keeps its parameters whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.recording import devices, replicas

from ...core import _collectives
from . import wrap
from ._shards import Shard, cut, gathered_again, memory_of
from ._wrapper import Wrapper, original_name


class XlaFullyShardedDataParallel(Wrapper):
    """Wraps a module; its state_dict has the names of the module's own, and this replica's parts.

    Args:
        module: what to wrap; it must be the same on all replicas (or see sync_module_states).
        reshard_after_forward: whether backward gathers the parameters again, instead of keeping
            them.
        compute_dtype: dtype of parameters and inputs in forward; default: their own.
        buffer_dtype: dtype of floating-point buffers; default: their own.
        fp32_reduce_scatter: whether gradients are reduced in float32, whatever compute_dtype is.
        sync_module_states: whether all replicas begin with the parameters of the first.
        auto_wrap_policy: which submodules are wrapped on their own.
        auto_wrapper_callable: what wraps them, called as (module, **kwargs).
        other names: how torch_xla lays out memory and orders ops, which is XLA's business here.

    Raises:
        RuntimeError: the module is wrapped already, or cannot be called.
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
        sync_module_states: bool = False,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., torch.nn.Module] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(module)
        if sync_module_states:
            _collectives.broadcast_master_param(module.to("xla"))
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or XlaFullyShardedDataParallel
            passed = {
                "reshard_after_forward": reshard_after_forward,
                "compute_dtype": compute_dtype,
                "fp32_reduce_scatter": fp32_reduce_scatter,
            }
            wrap.recursive_wrap(module, auto_wrap_policy, wrapper, True, **passed)
        self.compute_dtype = compute_dtype
        self.reshard_after_forward = reshard_after_forward
        self.rank, self.world_size = replicas.rank(), replicas.size()
        self._shards = self._cut(fp32_reduce_scatter) if self.world_size > 1 else {}
        module.to("xla")
        if buffer_dtype is not None:
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(buffer_dtype)

    def _cut(self, fp32_reduce_scatter: bool) -> dict[str, Shard]:
        """Replace the parameters that no inner wrapper has by parts of them; by their names."""
        inner = {
            id(parameter)
            for child in self.module.modules()
            if isinstance(child, XlaFullyShardedDataParallel)
            for parameter in child.parameters()
        }
        found: dict[str, Shard] = {}
        parts: dict[int, torch.nn.Parameter] = {}  # tied ones stay tied
        for prefix, owner in self.module.named_modules():
            for name, parameter in list(owner._parameters.items()):
                if parameter is None or id(parameter) in inner:
                    continue
                dtype = parameter.dtype
                floating = dtype.is_floating_point and self.compute_dtype is not None
                dtype = self.compute_dtype if floating else dtype
                assert dtype is not None
                part = parts.get(id(parameter))
                if part is None:
                    part = parts[id(parameter)] = cut(parameter, devices.default())
                    inner.add(id(part))
                owner._parameters[name] = part
                reduced = torch.float32 if fp32_reduce_scatter else dtype
                full_name = f"{prefix}.{name}" if prefix else name
                found[full_name] = Shard(owner, name, parameter.shape, dtype, reduced)
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, in compute_dtype, with whole parameters."""
        dtype = self.compute_dtype

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        if dtype is not None:
            args, kwargs = pytree.tree_map_only(torch.Tensor, cast, (args, kwargs))
        if self.world_size > 1:
            return self._gathered(args, kwargs)
        if dtype is None:
            return self.module(*args, **kwargs)
        parameters = {name: cast(p) for name, p in self.module.named_parameters()}
        return torch.func.functional_call(self.module, parameters, args, kwargs)

    def _gathered(self, args: Any, kwargs: Any) -> Any:
        whole: dict[int, torch.Tensor] = {}
        for shard in self._shards.values():
            if id(shard.part) not in whole:
                whole[id(shard.part)] = shard.whole()
        given = {name: whole[id(shard.part)] for name, shard in self._shards.items()}
        by_memory = {memory_of(given[name]): shard for name, shard in self._shards.items()}
        again = self.reshard_after_forward
        with gathered_again(by_memory) if again else contextlib.nullcontext():
            return torch.func.functional_call(
                self.module, given, args, kwargs, tie_weights=False, strict=False
            )

    @torch.no_grad()
    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, groups: Any = None
    ) -> torch.Tensor:
        """Scale the gradients so that their norm is at most `max_norm`; the norm before."""
        if self.world_size == 1:
            norm = torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
            return norm.to("xla")  # without gradients it is a zero of the CPU's
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        wide = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in gradients]
        norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in wide]
        norm: Any
        own = torch.stack(norms) if norms else torch.zeros(1, device=devices.default())
        if norm_type == float("inf"):
            norm = _collectives.all_reduce("max", own.max(), groups=groups)
        else:
            powers: Any = _collectives.all_reduce("sum", (own**norm_type).sum(), groups=groups)
            norm = powers ** (1 / norm_type)
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))
        return norm

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block without averaging gradients over the replicas: they may as well be averaged.

        Sums of averages are averages of sums.
        """
        yield

    def get_shard_metadata(self) -> dict[str, Any]:
        """What consolidation of checkpoints needs: the shapes of the whole parameters."""
        shards: dict[str, Any] = {}
        for prefix, module in self.named_modules():
            if isinstance(module, XlaFullyShardedDataParallel):
                for name, shard in module._shards.items():
                    inside = f"{prefix}.{name}" if prefix else name
                    shards[original_name(inside)] = {"_orig_size": tuple(shard.shape)}
        buffers = {original_name(n): tuple(b.shape) for n, b in self.module.named_buffers()}
        return {
            "shard_info": shards,
            "flatten_info": {},
            "buffer_info": buffers,
            "world_size": self.world_size,
            "rank": self.rank,
        }

    def get_original_names_and_sharded_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Parameters, or parts of them, by the names that they have in the wrapped module."""
        return [(original_name(name), p) for name, p in self.module.named_parameters()]
