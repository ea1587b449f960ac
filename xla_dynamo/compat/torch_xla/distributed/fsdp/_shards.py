"""Parameters of which each replica has a part: gathered where they are used, never kept whole.

A part is a stretch of the flat parameter, padded to equal length. `whole` gathers it, and its
gradient is reduced over the replicas, each of which gets its part of it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from xla_dynamo.compat.recording import replicas

from ...core import _collectives

_Key = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class Shard:
    """This replica's part of a parameter.

    owner, name: the module that has it, and how it calls it. shape: of the whole.
    dtype: in which it is gathered and computed with. reduce_dtype: in which gradients are reduced.
    """

    owner: torch.nn.Module
    name: str
    shape: torch.Size
    dtype: torch.dtype
    reduce_dtype: torch.dtype

    @property
    def part(self) -> torch.nn.Parameter:
        """The part, which the optimizer trains."""
        return self.owner._parameters[self.name]  # type: ignore[return-value]

    def whole(self) -> torch.Tensor:
        """The whole parameter, through which gradients flow to the part."""
        flat = _Gather.apply(self.part, self.dtype, self.reduce_dtype)
        return flat[: self.shape.numel()].view(self.shape)  # type: ignore[index]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, part: torch.Tensor, dtype: torch.dtype, reduce_dtype: torch.dtype
    ) -> torch.Tensor:
        ctx.own, ctx.reduce_dtype = part.dtype, reduce_dtype
        return _collectives.all_gather(part.to(dtype))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore
        count = replicas.size()
        given = gradient.to(ctx.reduce_dtype)
        mean: Any = _collectives.reduce_scatter("sum", given, 1 / count, 0, count)
        return mean.to(ctx.own), None, None


def cut(parameter: torch.nn.Parameter, device: torch.device) -> torch.nn.Parameter:
    """This replica's part of a parameter, on `device`."""
    flat, count = parameter.detach().cpu().flatten(), replicas.size()
    length = math.ceil(flat.numel() / count)
    padded = torch.nn.functional.pad(flat, (0, count * length - flat.numel()))
    own = padded[replicas.rank() * length :][:length].clone().to(device)
    return torch.nn.Parameter(own, requires_grad=parameter.requires_grad)


@contextlib.contextmanager
def gathered_again(shards: dict[int, Shard]) -> Iterator[None]:
    """Within, backward keeps no whole parameter: it gathers them a second time.

    shards: by the memory of the whole ones.
    """

    def pack(tensor: torch.Tensor) -> Any:
        shard = shards.get(memory_of(tensor))
        if shard is None:
            return tensor
        return shard, (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def unpack(kept: Any) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        shard, (shape, strides, offset) = kept
        whole = shard.whole().detach()
        if (shape, strides) == (tuple(whole.shape), whole.stride()):
            return whole
        return whole.as_strided(shape, strides, offset)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def memory_of(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory."""
    return tensor.untyped_storage()._cdata if tensor.device.type == "xla" else id(tensor)
