"""Where the elements of a padded tensor are, for the sizes of a call: it is padded and cut here.

The copies are PyTorch's, on the device where the tensor is.
"""

from __future__ import annotations

import math

import torch

from xla_dynamo.backend.graph import memory_layout
from xla_dynamo.backend.passes.padding.layouts import factors_of
from xla_dynamo.backend.passes.padding.plan import Dims
from xla_dynamo.backend.passes.padding.sizes import Numbers, evaluated
from xla_dynamo.backend.runtime import resident

# What is put into the padding. Tests put in what spoils every sum.
poison = False


class Layout:
    """Where the elements of a tensor are, for the sizes of a call.

    shape: without padding; strides: of a row-major tensor of it. padded: with padding.
    parts, padded_parts: the same by factors, where a dimension has several.
    short: (which of the parts, its size, its padded one) of those that are padded.
    """

    def __init__(self, dims: Dims, real: Numbers, buckets: Numbers) -> None:
        self.shape = tuple(evaluated(dim.size, real) for dim in dims)
        self.padded = tuple(evaluated(dim.size, buckets) for dim in dims)
        self.strides = torch.empty(self.shape, device="meta").stride()
        factors = [f for dim in dims for f in factors_of(dim) or (1,)]
        self.parts = tuple(evaluated(f, real) for f in factors)
        self.padded_parts = tuple(evaluated(f, buckets) for f in factors)
        sizes = enumerate(zip(self.parts, self.padded_parts, strict=True))
        self.short = [(d, n, there) for d, (n, there) in sizes if n != there]
        self.has_parts = self.parts != self.shape

    def pad(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, which has no padding, with it."""
        if not self.short:
            return x
        on, x = x.device, x.detach()
        x = x.cpu() if on.type in resident.RESIDENCIES else x
        padded = torch.empty(self.padded_parts, dtype=x.dtype, device=x.device)
        inside = padded
        for d, n, there in self.short:
            _spoil_or_clear(inside.narrow(d, n, there - n))
            inside = inside.narrow(d, 0, n)
        if self.has_parts:
            x, padded = x.reshape(self.parts), padded.view(self.padded)
        inside.copy_(x)
        return padded if padded.device == on else padded.to(on)

    def cut(self, x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        """`x`, which has padding, without it, and with these strides where they are dense."""
        if not self.short and x.stride() == strides:
            return x
        on = x.device
        x = x.cpu() if on.type in resident.RESIDENCIES else x
        x = x.reshape(self.padded_parts) if self.has_parts else x
        for d, n, _ in self.short:
            x = x.narrow(d, 0, n)
        if x.device != on:
            return x.reshape(self.shape).contiguous().to(on)
        if strides != self.strides:
            return _restrided(x.reshape(self.shape), strides)
        if not self.has_parts:
            return x.clone(memory_format=torch.contiguous_format)
        made = torch.empty(self.shape, dtype=x.dtype, device=x.device)
        made.view(self.parts).copy_(x)
        return made


def _spoil_or_clear(x: torch.Tensor) -> None:
    fill = fill_of(x.dtype)
    x.fill_(fill) if fill else x.zero_()


def fill_of(dtype: torch.dtype) -> float:
    """What is put into the padding of a tensor."""
    if not poison:
        return 0
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max


def _restrided(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A copy of `x` with these strides, if they are dense but for repeated elements."""
    shape, once = x.shape, list(x.shape)
    for d, step in enumerate(strides):
        if step == 0 and shape[d] > 1:
            x, once[d] = x.narrow(d, 0, 1), 1
    if not memory_layout.fills_memory(once, strides):
        return (
            x.expand(shape).contiguous()
            if x.shape != shape
            else x.clone(memory_format=torch.contiguous_format)
        )
    made = torch.empty_strided(once, strides, dtype=x.dtype, device=x.device).copy_(x)
    return made if made.shape == shape else made.as_strided(shape, strides)
