"""torch tensors -> device arrays, each parameter once.

A tensor that outlives a call (a parameter, a buffer) keeps its device array for as long as it
lives. Where the array aliases the tensor's memory (CPU tensors on the CPU client), in-place
updates show through it and nothing is ever copied. Elsewhere the tensor's version counter tells
when to upload again. Writes through `tensor.data` do not move that counter (PyTorch's own rule).
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from . import pjrt


class Residents:
    """The arrays on one device of tensors that are expected again, keyed by tensor identity."""

    def __init__(self, device: pjrt.Device) -> None:
        self._device = device
        # id -> (weak reference, data pointer, version or None where memory is shared, array)
        self._entries: dict[int, tuple[Any, int, int | None, pjrt.Array]] = {}

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        """The array of `tensor`, uploaded or aliased at the first call and after a change."""
        entry = self._entries.get(id(tensor))
        # `tensor.data = other` replaces memory, or its order, without moving the version counter.
        if entry is not None and entry[1] == tensor.data_ptr() and tensor.is_contiguous():
            version = entry[2]
            if version is None or version == tensor._version:
                return entry[3]
        return self._admit(tensor)

    def __len__(self) -> int:
        return len(self._entries)

    def _admit(self, tensor: torch.Tensor) -> pjrt.Array:
        # The array keeps what it was made from alive: a detached alias, so that `tensor` can die.
        array = transient(tensor.detach(), self._device)
        address = tensor.data_ptr()
        shared = tensor.is_contiguous() and tensor.numel() > 0 and pjrt.pointer(array) == address
        if not shared and (tensor.is_inference() or pjrt.shares_memory(self._device, tensor)):
            # Copied although memory could be shared (unaligned), or no version counter to trust.
            return array
        key = id(tensor)
        reference = weakref.ref(tensor, lambda _, key=key: self._entries.pop(key, None))
        version = None if shared else tensor._version
        self._entries[key] = (reference, address, version, array)
        return array


class Slot:
    """One argument of an executable. A tensor that comes twice in a row is expected again.

    That holds only where memory is shared: a copy of a user's tensor would miss what a NumPy array
    over the same memory, say, writes to it.
    """

    __slots__ = ("_always", "_device", "_previous", "_resident", "position")

    def __init__(self, device: pjrt.Device, position: int, always: bool) -> None:
        self.position = position
        self._always = always
        self._previous = 0
        self._device = device
        self._resident = residents(device).array

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        """The tensor's array: the one it has, or a new one."""
        if self._always:
            return self._resident(tensor)
        key = id(tensor)
        if key == self._previous and pjrt.shares_memory(self._device, tensor):
            return self._resident(tensor)
        self._previous = key
        return transient(tensor, self._device)


def transient(tensor: torch.Tensor, device: pjrt.Device) -> pjrt.Array:
    """The array of a tensor that is not expected again."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return pjrt.to_array(tensor, device)
    return pjrt.to_array(tensor.resolve_conj().resolve_neg().contiguous(), device)


_residents: dict[Any, Residents] = {}


def residents(device: pjrt.Device) -> Residents:
    """The one `Residents` of a device: graphs that share parameters share arrays."""
    return _residents.setdefault(device, Residents(device))
