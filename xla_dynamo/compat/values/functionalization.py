"""PyTorch's functionalization: the wrapper that makes plain tensors of leaves.

Private API of torch, met here alone; seen on 2.13 (and, as a prototype, on 2.9 and 2.15).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_torch: Any = torch

# Whether a tensor is a wrapper; what is in it; a new wrapper.
is_functional: Callable[[torch.Tensor], bool] = _torch._is_functional_tensor
is_base: Callable[[torch.Tensor], bool] = _torch._is_functional_tensor_base  # it is no view
unwrapped: Callable[[torch.Tensor], torch.Tensor] = _torch._from_functional_tensor
wrapped: Callable[[torch.Tensor], torch.Tensor] = _torch._to_functional_tensor
# Take in what was written through other views of the same memory; let them take in this write.
sync: Callable[[torch.Tensor], None] = _torch._functionalize_sync
commit: Callable[[torch.Tensor], None] = _torch._functionalize_commit_update
# Let a wrapper have other contents.
replace: Callable[[torch.Tensor, torch.Tensor], None] = _torch._functionalize_replace
# Whether two share memory; makes no storage for Python, which would count as one more owner.
is_alias: Callable[[torch.Tensor, torch.Tensor], bool] = _torch._C._is_alias_of
# Tell autograd that tensors have been written to.
mark_written: Callable[[Sequence[torch.Tensor]], None] = _torch._C._increment_version
# Of a leaf of given shape, dtype and device.
wrapper_subclass: Callable[..., Any] = torch.Tensor._make_wrapper_subclass
# How a tensor is a view of the tensor whose memory it shares; the same view of another tensor.
view_of: Callable[[torch.Tensor], Sequence[Any]] = (
    _torch._C._functionalization.get_view_meta_sequence
)
same_view: Callable[[torch.Tensor, Sequence[Any]], torch.Tensor] = (
    _torch._C._functionalization.apply_view_meta_sequence
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
    owners = _torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return tensor._use_count() > 2 and owners > 2  # type: ignore[attr-defined]


def _ops_of_aten(chosen: Callable[[str], bool] = bool) -> Iterator[Any]:
    """Ops of aten with a chosen name that PyTorch does not make of others."""
    aten = torch.ops.aten
    for full in _torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if full.startswith("aten::") and chosen(name):
            op = getattr(getattr(aten, name), overload or "default", None)
            key = torch._C.DispatchKey.CompositeImplicitAutograd
            if op is not None and not op.has_kernel_for_dispatch_key(key):
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
    return _torch._C._dispatch_tls_is_dispatch_key_included(TRANSFORMED)


TRANSFORMED = torch._C.DispatchKey.FuncTorchDynamicLayerBackMode
_LAZY_BITS = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)


@contextlib.contextmanager
def honouring_lazy_bits() -> Iterator[None]:
    """Kernels of the CPU see conj() and imag's sign in the block.

    Below a kernel in Python PyTorch leaves these keys out: `x * x.conj()` would be x squared.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in _LAZY_BITS:
        excluded = excluded.remove(key)
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield


_MODES = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)


@functools.cache
def _initial() -> tuple[Any, Any]:
    """The keys that dispatch takes in and leaves out where no kernel is running."""
    found: list[tuple[Any, Any]] = []

    def read() -> None:
        included = torch._C._dispatch_tls_local_include_set()
        found.append((included, torch._C._dispatch_tls_local_exclude_set()))

    fresh = threading.Thread(target=read)  # no other place is known to be outside
    fresh.start()
    fresh.join()
    return found[0]


@contextlib.contextmanager
def outermost() -> Iterator[None]:
    """Ops in the block are dispatched as if they were called outside any kernel.

    A barrier may come from below a kernel in Python, where PyTorch leaves out functionalization.
    """
    included, excluded = _initial()
    current = torch._C._dispatch_tls_local_include_set()
    for key in _MODES:  # a mode that is entered when another is active does not add them
        if current.has(key):
            included = included.add(key)
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield
