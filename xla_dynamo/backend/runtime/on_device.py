"""CPU tensors whose values are on a device with memory of its own: what is kept between programs.

What forward saves for backward is such a tensor: it has the shape and dtype of a CPU tensor, no
memory, and the device's array, which backward takes as it is. Whatever else reads it (a hook of
saved tensors, an op that runs on the CPU) gets the values, which are downloaded once. The array
lives as long as the tensors that stand for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import torch_private

from . import transfers
from .pjrt import Array, Device

aten = torch.ops.aten


class _Kept:
    """The array of one or more tensors, or what is in its place since the host wrote to it."""

    __slots__ = ("array", "device", "host")

    def __init__(self, array: Array, device: Device) -> None:
        self.array: Array | None = array
        self.device = device
        self.host: torch.Tensor | None = None


class OnDevice(torch.Tensor):
    """A tensor that stands for a device array, row-major in its eyes."""

    __slots__ = ("_kept",)
    _kept: _Kept

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READERS:  # of memory, below the dispatch of ops
            args, kwargs = on_host((args, kwargs or {}))
        return torch_private.without_torch_function(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _SAME:
            return _tensor(args[0].shape, args[0].dtype, args[0]._kept)
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, OnDevice)]
        args, kwargs = on_host((args, kwargs or {}))
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            for x in given:
                x._kept.array = None  # whatever was written is on the host
        return result


_SAME = (aten.detach.default, aten.alias.default)
_READERS = frozenset(
    {
        getattr(torch.Tensor, name)
        for name in [
            "numpy",
            "__array__",
            "__dlpack__",
            "__reduce_ex__",
            "__deepcopy__",
            "data_ptr",
            "untyped_storage",
            "storage",
            "share_memory_",
            "tolist",
            "__repr__",
        ]
    }
)


def keep(array: Array, device: Device, dtype: torch.dtype) -> OnDevice:
    """A tensor of `dtype` that stands for `array`."""
    return _tensor(array.shape, dtype, _Kept(array, device))


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, kept: _Kept) -> OnDevice:
    made = torch_private.wrapper_subclass(OnDevice, shape, dtype=dtype, device="cpu")
    made._kept = kept
    return made


def array_of(tensor: torch.Tensor, device: Device) -> Array | None:
    """The array that a tensor stands for, if it does, and if that is on `device`."""
    if type(tensor) is not OnDevice:
        return None
    kept = tensor._kept
    return kept.array if kept.device is device else None


def on_host(values: Any) -> Any:
    """A nest of values, with memory of the CPU in the place of tensors of the device."""
    return pytree.tree_map_only(OnDevice, host_of, values)


def host_of(tensor: Any) -> Any:
    """A tensor of the device as one in the CPU's memory; anything else as it is."""
    if type(tensor) is not OnDevice:
        return tensor
    kept = tensor._kept
    if kept.host is None:
        kept.host = transfers.to_tensors([kept.array], kept.device, host=True)[0]
    return kept.host
