"""PyTorch's own way for an op: what runs after a kernel of this folder, or instead of it.

A kernel for dispatch key AutogradXLA stands before the autograd kernel of the op. `redispatch` runs
that one, which differentiates; below it comes functionalization, and then the device's recorder.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.compat.values.functionalization import TRANSFORMED, transformed
from xla_dynamo.compat.values.torch_private import (
    Key,
    KeySet,
    is_functional,
    kernels_of,
    outside_transforms,
)

_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def redispatch(op: Any, args: Any, kwargs: Any) -> Any:
    """Run `op` by the autograd kernel that a kernel of ours stands before."""
    taken = zip(op._schema.arguments, args, strict=False)
    args = [
        _zero_dim(value) if isinstance(kind.type, torch.TensorType) else value
        for kind, value in taken
    ]
    if transformed():
        return op.redispatch(_keys(op, TRANSFORMED), *args, **kwargs)
    tensors = args[0] if isinstance(args[0], (list, tuple)) else (args[0],)
    given = (*tensors, *args[1:], *kwargs.values())
    on_device = any(is_functional(t) for t in given if isinstance(t, torch.Tensor))
    return op.redispatch(_keys(op, Key.Functionalize if on_device else Key.Python), *args, **kwargs)


@functools.cache
def on_device(op: Any) -> Callable[..., Any]:
    """`op` as a function that does what `redispatch` does, at once.

    Every tensor must be one of the device, no number may stand for a tensor, and no transform such
    as torch.func.grad may be active.
    """
    return functools.partial(op.redispatch, _keys(op, Key.Functionalize))


@functools.cache
def _keys(op: Any, last: Any) -> Any:
    """The dispatch keys from autograd to `last`, without kernels that only pass a call on.

    Of kernels that are the same for every device, those of the CPU: XLA's are the ones overridden.
    """
    keys = KeySet(Key.CPU) | KeySet(last)
    table = kernels_of(op.name())
    for key in (Key.AutogradCPU, Key.ADInplaceOrView):
        if f"\n{key.name}: fallthrough" not in table:
            keys = keys | KeySet(key)
    return keys


def _zero_dim(value: Any) -> Any:
    """A Python number in the place of a tensor arrives as a number: as a tensor, in full precision.

    A tensor made here must not belong to a functional transform that is active.
    """
    dtype = _NUMBERS.get(type(value))
    if dtype is None:
        return value
    with outside_transforms():
        return torch.tensor(value, dtype=dtype, device="cpu")
