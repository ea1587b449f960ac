"""PyTorch's functionalization: the wrapper that makes plain tensors of leaves.

Private API of torch, met here alone; seen on 2.13 (and, as a prototype, on 2.9 and 2.15).
"""

from __future__ import annotations

import contextlib
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


def inplace_ops() -> Iterator[Any]:
    """The in-place ops of aten that have a kernel of their own."""
    aten = torch.ops.aten
    for full in _torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if full.startswith("aten::") and name.endswith("_") and not name.startswith("__"):
            op = getattr(getattr(aten, name), overload or "default", None)
            key = torch._C.DispatchKey.CompositeImplicitAutograd
            if op is not None and not op.has_kernel_for_dispatch_key(key):
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
