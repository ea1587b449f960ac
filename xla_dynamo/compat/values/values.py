"""What a lazy tensor stands for: a `Value`, pending in its device's trace or held as an array.

    torch.Tensor (plain, what users hold) -> functional wrapper (C++) -> Leaf -> Value -> array

`Leaf` is the tensor subclass inside PyTorch's functional wrapper; all it has is its `Value`.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from xla_dynamo.backend.runtime.shardings import Sharding

from . import torch_private
from .forks import fork_safe

Array = Any

# Held where names and metas are made: traces of several threads share them.
naming = fork_safe(threading.Lock())


@dataclass(eq=False, slots=True, repr=False)
class Ref:
    """The name of a value inside one trace: input or result number `index`.

    Refs are interned, so that comparing two traces compares identities.
    """

    index: int
    meta: Meta | None  # of an input; the meta of a result is its op's business

    def __repr__(self) -> str:
        return f"%{self.index}" if self.meta is None else f"%arg{self.index}"


results: list[Ref] = [Ref(i, None) for i in range(4096)]


def result(index: int) -> Ref:
    """The name of result `index` of a trace."""
    if index >= len(results):
        with naming:
            while index >= len(results):
                results.extend([Ref(i, None) for i in range(len(results), 2 * len(results))])
    return results[index]


@dataclass(eq=False, slots=True, weakref_slot=True, repr=False)
class Meta:
    """Shape, dtype and strides of a value, one object for each triple: compare with `is`.

    strides: those of eager PyTorch, by which it tells what is a view from what is a copy; None if
    they are row-major. Arrays of a device have none.
    """

    shape: torch.Size
    dtype: torch.dtype
    strides: tuple[int, ...] | None
    inputs: list[Ref] = field(default_factory=list)  # the k-th input of a trace, if of this meta

    @property
    def layout(self) -> tuple[int, ...]:
        """The strides, also where they are row-major."""
        return self.strides or row_major(self.shape)

    def input(self, index: int) -> Ref:
        """The name of input `index` of a trace."""
        inputs = self.inputs
        if len(inputs) <= index:
            with naming:
                while len(inputs) <= index:
                    inputs.append(Ref(len(inputs), self))
        return inputs[index]

    def __repr__(self) -> str:
        text = f"{str(self.dtype).removeprefix('torch.')}[{', '.join(map(str, self.shape))}]"
        return text if self.strides is None else f"{text} with strides {self.strides}"


_Key = tuple[torch.Size, torch.dtype, tuple[int, ...] | None]
_metas: weakref.WeakValueDictionary[_Key, Meta] = weakref.WeakValueDictionary()


def meta(shape: torch.Size, dtype: torch.dtype, strides: Sequence[int] | None = None) -> Meta:
    """The one `Meta` of this shape and dtype, and of these strides: row-major, if not given."""
    own = None if strides is None or row_major(shape) == tuple(strides) else tuple(strides)
    key = shape, dtype, own
    found = _metas.get(key)
    if found is None:
        with naming:
            found = _metas.setdefault(key, Meta(shape, dtype, own))
    return found


def meta_of(tensor: torch.Tensor) -> Meta:
    """The `Meta` of a tensor like this one."""
    return meta(torch.Size(tensor.shape), tensor.dtype, tensor.stride())


def blank(of: Meta) -> torch.Tensor:
    """A tensor of a meta on the device "meta", where eager's kernels tell strides alone."""
    return torch.empty_strided(of.shape, of.layout, dtype=of.dtype, device="meta")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Failure:
    """Why values were never computed: the error of an op, without frames, and who raised it."""

    error: Exception
    note: str

    def again(self) -> Exception:
        """The error as a new exception, to be raised."""
        made = copy.copy(self.error)
        made.__dict__["__notes__"] = [*self.error.__dict__.get("__notes__", ()), self.note]
        return made


@dataclass(frozen=True)
class PutOff:
    """What `op` (of op_table) gives for `parts` and `rest`: recorded when somebody uses it."""

    op: Any
    parts: tuple[Value, ...]
    rest: tuple[Any, ...]

    def arguments(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Those of the op, with others in the place of the values."""
        return (*parts, *self.rest)


@dataclass(frozen=True)
class Joined(PutOff):
    """What torch.cat or torch.stack gives, along dimension rest[0].

    listed: the parts are a list that grows from step to step.
    """

    listed: bool = False

    def arguments(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """A list is one argument."""
        return (tuple(parts), *self.rest)


@dataclass(eq=False)
class Held:
    """What the host has (execution/on_host.py), which no op of the device has used yet.

    known: the tensor, or what makes it when it is needed.
    place: gives the value its array.
    is_upload: a tensor for several devices, of which an op, or a mark, decides which part each
        gets, or what is in a larger array: unlike what the host computed, it is the devices' to
        compute with.
    split: how it is split where nobody marks it; None: not at all.
    """

    known: torch.Tensor | Callable[[], torch.Tensor]
    place: Callable[[Value], None]
    is_upload: bool = False
    split: Sharding | None = None

    @property
    def host(self) -> torch.Tensor:
        """The tensor."""
        if not isinstance(self.known, torch.Tensor):
            self.known = self.known()
        return self.known


class Home(Protocol):
    """Where the values of one device are pending: see recording.trace."""

    device: torch.device
    stamp: object

    def adopt(self, value: Value) -> None:
        """Give a value that was computed before, or never, a name in this trace."""

    def record_values(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Append an op: its results as values, or shape_inference.EAGER."""

    def restride(self, value: Value, wanted: Meta) -> Value:
        """The same elements, with the strides of `wanted`."""
        ...


@dataclass(eq=False, slots=True, repr=False)
class Value:
    """One tensor value on one device.

    ref: its name in the trace whose stamp is `stamp`; or why it has no value, or how it is made, or
        what the host has.
    array: the device array, once it is computed (or being computed).
    A value with neither is what torch.empty gives: not yet anything.
    """

    meta: Meta
    home: Home
    ref: Ref | Failure | PutOff | Held | None = None
    stamp: object = None
    array: Array = None


_wrapper = torch_private.wrapper_subclass


class Leaf(torch.Tensor):
    """The tensor inside functionalization's wrapper: it meets functional aten ops only."""

    __slots__ = ("value",)
    value: Value
    __torch_function__: Any = torch_private.no_torch_function

    @classmethod
    def __torch_dispatch__(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError("the lazy device is not installed: import xla_dynamo.compat")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Leaf({self.value.meta})"


def leaf(value: Value) -> Leaf:
    """A new leaf for `value`."""
    meta = value.meta
    made = _wrapper(Leaf, meta.shape, meta.strides, dtype=meta.dtype, device=value.home.device)
    made.value = value
    return made


def restrided(value: Value, wanted: Meta) -> Value:
    """`value`, with the strides of `wanted`."""
    return value if value.meta is wanted else value.home.restride(value, wanted)


def tensor(value: Value) -> torch.Tensor:
    """A new plain torch.Tensor, on the value's device, for `value`."""
    return torch_private.wrapped(leaf(value))


def leaf_of(tensor: torch.Tensor) -> Leaf | None:
    """The leaf below a tensor of the lazy device, pending writes through views applied."""
    if type(tensor) is Leaf:
        return tensor
    if not torch_private.is_functional(tensor):
        return None
    torch_private.sync(tensor)
    inner = torch_private.unwrapped(tensor)
    return inner if type(inner) is Leaf else None


def value_of(tensor: torch.Tensor) -> Value:
    """The value of a tensor of the lazy device.

    Raises:
        TypeError: it is a tensor of another device.
    """
    found = leaf_of(tensor)
    if found is None:
        raise TypeError(f"expected a tensor on an xla device, got one on {tensor.device}")
    return found.value


def restride(tensor: torch.Tensor, strides: Sequence[int]) -> None:
    """Give a tensor that was written to its strides again: functionalization takes the result's."""
    own = value_of(tensor)
    wanted = meta(own.meta.shape, own.meta.dtype, strides)
    torch_private.replace(tensor, leaf(own.home.restride(own, wanted)))
    torch_private.commit(tensor)
    torch_private.sync(tensor)
