"""Make device arrays of torch tensors, once for each parameter.

A tensor that outlives a call (a parameter, a buffer) keeps its device array for as long as it
lives. Where the array aliases the tensor's memory (CPU tensors on the CPU client), in-place
updates are visible through it and nothing is ever copied. Elsewhere the tensor's version counter
tells when to upload again. Writes through `tensor.data` do not advance that counter, in PyTorch
either.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from . import on_device, pjrt, transfers


class Entry:
    """A tensor and its array. `version` is None where they share memory, and counts no writes."""

    __slots__ = ("address", "array", "reference", "version")

    def __init__(self) -> None:
        self.reference: Callable[[], torch.Tensor | None] = _nothing
        self.address = 0
        self.version: int | None = None
        self.array: pjrt.Array = None


def _nothing() -> None:
    """What a weak reference gives once its object is gone."""


class Residents:
    """The arrays, on one device, of tensors that will be arguments again, by tensor identity."""

    def __init__(self, device: pjrt.Device) -> None:
        self._device = device
        self._entries: dict[int, Entry] = {}

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        """The array of `tensor`, uploaded or aliased at the first call and after a change."""
        entry = self._entries.get(id(tensor))
        # `tensor.data = other` replaces memory or strides and leaves the version counter.
        if entry is not None and entry.address == tensor.data_ptr() and tensor.is_contiguous():
            version = entry.version
            if version is None or version == tensor._version:
                return entry.array
        return self._admit(tensor)

    def entry(self, tensor: torch.Tensor) -> Entry:
        """What is kept of `tensor`, which may be nothing."""
        return self._entries.get(id(tensor), _NONE)

    def __len__(self) -> int:
        return len(self._entries)

    def _admit(self, tensor: torch.Tensor) -> pjrt.Array:
        # The array keeps its source alive: a detached alias, so that `tensor` can be freed.
        array = transient(tensor.detach(), self._device)
        address = tensor.data_ptr()
        shared = (
            tensor.is_contiguous() and tensor.numel() > 0 and transfers.pointer(array) == address
        )
        if not shared and (tensor.is_inference() or transfers.shares_memory(self._device, tensor)):
            # Copied although memory could be shared (unaligned), or no version counter to trust.
            return array
        key = id(tensor)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry()
            entry.reference = weakref.ref(tensor, functools.partial(self._forget, key))
        entry.array, entry.version = array, None if shared else tensor._version
        entry.address = address
        return array

    def _forget(self, key: int, _: object) -> None:
        """A tensor is gone. A slot may have its entry still, so it is emptied, too."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.array = None


_NONE = Entry()


class Slot:
    """One argument of an executable. A tensor that comes twice in a row keeps its array.

    Only where memory is shared: a copy would miss writes to the user's tensor through a NumPy array
    over the same memory, say.
    """

    __slots__ = ("_always", "_device", "_previous", "_residents", "entry", "position")

    def __init__(self, device: pjrt.Device, position: int, always: bool) -> None:
        self.position = position
        self.entry = _NONE  # of the tensor that came last, if it is kept
        self._always = always
        self._previous = 0
        self._device = device
        self._residents = residents(device)

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        """The tensor's array: the one it has, or a new one."""
        key = id(tensor)
        if self._always or (
            key == self._previous and transfers.shares_memory(self._device, tensor)
        ):
            array = self._residents.array(tensor)
            self.entry = self._residents.entry(tensor)
            return array
        self._previous = key
        return transient(tensor, self._device)


def arrays(slots: Sequence[Slot], given: Sequence[Any]) -> list[pjrt.Array]:
    """The arguments of an executable, of those of a call. This is on the path of every call."""
    found = []
    for slot in slots:
        tensor, entry = given[slot.position], slot.entry
        if (  # as in Residents.array
            entry.reference() is tensor
            and entry.address == tensor.data_ptr()
            and tensor.is_contiguous()
            and (entry.version is None or entry.version == tensor._version)
        ):
            found.append(entry.array)
        else:
            found.append(slot.array(tensor))
    return found


class Permuted(Slot):
    """An argument whose program takes its dimensions in the order that they have in memory."""

    __slots__ = ("_order",)

    def __init__(self, device: pjrt.Device, position: int, order: Sequence[int]) -> None:
        super().__init__(device, position, always=False)
        self._order = order

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        return transient(tensor.permute(*self._order), self._device)


class Apart(Slot):
    """An argument of a device with memory of its own, where the tensor may be of that device."""

    __slots__ = ()

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        kept = on_device.array_of(tensor, self._device)
        return super().array(on_device.host_of(tensor)) if kept is None else kept


class GivenUp(Apart):
    """An argument whose array becomes a result: one that no tensor stands for."""

    __slots__ = ()

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        kept = on_device.array_of(tensor, self._device)
        return super().array(tensor) if kept is None else transfers.copied(kept)


class HandedOver(Slot):
    """An argument whose tensor becomes an array anew at each call, after the others have.

    On a GPU that is what makes the program wait for PyTorch's work: see `gpu_order`.
    """

    __slots__ = ()

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        return transient(tensor, self._device)


class Covered(Apart):
    """An argument of a launch with one that is handed over: that one waits for PyTorch's work."""

    __slots__ = ()

    def array(self, tensor: torch.Tensor) -> pjrt.Array:
        if self._always or not tensor.is_cuda:
            return super().array(tensor)
        return transient(tensor, self._device, ordered=False)


def slots(
    device: pjrt.Device,
    positions: Sequence[int],
    resident: Collection[int],
    on_gpu: Sequence[int] = (),
    orders: Mapping[int, Sequence[int]] = MappingProxyType({}),
    given_up: Collection[int] = (),
) -> list[Slot]:
    """The arguments of an executable, by their positions in a call's.

    resident: those whose tensors come again at every call.
    on_gpu: those that lie in a GPU's memory.
    orders: the order in memory of those that are not row-major, by place in `positions`.
    given_up: those, on a device with memory of its own, that become results, by place.
    """
    handed_over = on_gpu[:1] if device.platform == "gpu" else ()
    kind = Covered if handed_over else Apart if transfers.is_apart(device) else Slot
    return [
        Permuted(device, i, orders[place])
        if place in orders
        else HandedOver(device, i, False)
        if i in handed_over
        else GivenUp(device, i, False)
        if place in given_up
        else kind(device, i, i in resident)
        for place, i in enumerate(positions)
    ]


def transient(tensor: torch.Tensor, device: pjrt.Device, *, ordered: bool = True) -> pjrt.Array:
    """The array of a tensor for a single call; `ordered`: see `transfers.to_array`."""
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
    return transfers.to_array(tensor, device, ordered=ordered)


_residents: dict[Any, Residents] = {}


def residents(device: pjrt.Device) -> Residents:
    """The one `Residents` of a device: graphs that share parameters share arrays."""
    return _residents.setdefault(device, Residents(device))
