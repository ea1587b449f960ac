"""PyTorch's functionalization, which wraps each `Leaf` in the plain tensor that users hold.

It turns in-place ops and views into functional ops, which is what the device records. A wrapper
knows by which views it came from its base; writes through one view reach the others when they are
synchronized.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from .torch_private import (
    Key,
    all_op_names,
    excluded_keys,
    included_keys,
    is_included,
    only_keys,
    storage_owners,
    view_of,
)


def view_names(tensor: torch.Tensor) -> list[str]:
    """How a view came from its base, in order; names that begin as the op: "expand_ViewMeta"."""
    return [type(step).__name__ for step in view_of(tensor)]


def repeats_elements(step: Any) -> bool:
    """Whether one step of `view_of` is an as_strided() that may give an element at two places."""
    if not type(step).__name__.startswith("as_strided"):
        return False
    sizes, strides = step.as_tuple()[3:5]
    reach = 0
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def has_views(tensor: torch.Tensor) -> bool:
    """Whether a base that a kernel got from Python has views that autograd knows.

    Such a view keeps the base alive and shares its memory; one reference is the kernel's. What was
    saved for backward does the former, what detach() made the latter.
    """
    owners = storage_owners(tensor.untyped_storage()._cdata)
    return tensor._use_count() > 2 and owners > 2  # type: ignore[attr-defined]


def _ops_of_aten(chosen: Callable[[str], bool] = bool) -> Iterator[Any]:
    """Ops of aten with a chosen name that PyTorch does not make of others."""
    aten = torch.ops.aten
    for full in all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if full.startswith("aten::") and chosen(name):
            op = getattr(getattr(aten, name), overload or "default", None)
            composite = Key.CompositeImplicitAutograd
            if op is not None and not op.has_kernel_for_dispatch_key(composite):
                yield op


def inplace_ops() -> Iterator[Any]:
    """The in-place ops of aten that have a kernel of their own."""
    return _ops_of_aten(lambda name: name.endswith("_") and not name.startswith("__"))


def out_ops() -> Iterator[Any]:
    """Ops of aten with out= that Python's functions have and that have a kernel of their own."""
    for op in _ops_of_aten():
        public = torch.Tag.generated not in op.tags or op._schema.name.endswith("_copy")
        if public and any(argument.is_out for argument in op._schema.arguments):
            yield op


def transformed() -> bool:
    """Whether a transform like torch.func.grad is active."""
    return is_included(TRANSFORMED)


TRANSFORMED = Key.FuncTorchDynamicLayerBackMode
_LAZY_BITS = (Key.Conjugate, Key.Negative)


@contextlib.contextmanager
def honouring_lazy_bits() -> Iterator[None]:
    """Kernels of the CPU see conj() and imag's sign in the block.

    Below a kernel in Python PyTorch leaves these keys out: `x * x.conj()` would be x squared.
    """
    excluded = excluded_keys()
    for key in _LAZY_BITS:
        excluded = excluded.remove(key)
    included = included_keys()
    with only_keys(included, excluded):
        yield


_MODES = (Key.Python, Key.PythonTLSSnapshot)


@functools.cache
def _initial() -> tuple[Any, Any]:
    """The keys that dispatch takes in and leaves out where no kernel is running."""
    with ThreadPoolExecutor(1) as outside:  # no other place is known to be outside
        return outside.submit(lambda: (included_keys(), excluded_keys())).result()


@contextlib.contextmanager
def outermost() -> Iterator[None]:
    """Ops in the block are dispatched as if they were called outside any kernel.

    A barrier may come from below a kernel in Python, where PyTorch leaves out functionalization.
    """
    included, excluded = _initial()
    current = included_keys()
    for key in _MODES:  # a mode that is entered when another is active does not add them
        if current.has(key):
            included = included.add(key)
    with only_keys(included, excluded):
        yield
