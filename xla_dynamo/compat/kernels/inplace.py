"""In-place ops outside autograd: an optimizer's updates, running statistics.

PyTorch's functionalization runs each in-place op a second time on meta tensors to check it; for a
list of parameters that is most of a step's time in Python. Here the functional op is recorded at
once and the tensor's leaf gets the new value. That holds where nothing is differentiated and the
result has the tensor's own shape and dtype; every other call is redispatched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.backend.decompositions.foreach import FOREACH
from xla_dynamo.backend.lowering import operands
from xla_dynamo.compat.values.fork_safe import fork_safe
from xla_dynamo.compat.values.op_table import Op, op_of
from xla_dynamo.compat.values.values import Meta

from .direct_update import Unfit, argument, compute, leaf_of, store
from .inplace_replacements import REPLACED, register_inplace_replacements
from .overlapping_writes import (
    inplace_kernel,
    register_overlapping_writes,
)

aten = torch.ops.aten

_NAMES = [
    "abs",
    "add",
    "addcdiv",
    "addcmul",
    "clamp",
    "clamp_max",
    "clamp_min",
    "div",
    "exp",
    "fill",
    "floor",
    "lerp",
    "log",
    "masked_fill",
    "mul",
    "neg",
    "pow",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sqrt",
    "sub",
    "tanh",
    "zero",
]

# In-place ops whose functional form has another overload name.
_OTHER_NAMES = {
    aten.pow_.Scalar: aten.pow.Tensor_Scalar,
    aten.pow_.Tensor: aten.pow.Tensor_Tensor,
}

# Overloads that take a Python number in the place of a tensor.
_TAKE_NUMBERS = {
    aten.add_.Tensor,
    aten.div_.Tensor,
    aten.div_.Tensor_mode,
    aten.mul_.Tensor,
    aten.sub_.Tensor,
}


class _WithdrawnInTransforms:
    """Kernels that are not registered while a gradient of torch.func is computed.

    There every argument is wrapped, also a number that stands for a tensor, and PyTorch fails to
    hand that to a kernel in Python.
    """

    def __init__(self) -> None:
        self.lock = fork_safe(threading.Lock())
        self.depth = 0
        self.kernels: list[tuple[str, Callable[..., Any]]] = []
        self.library: torch.library.Library | None = None

    def register(self) -> None:
        self.library = torch.library.Library("aten", "IMPL", "AutogradXLA")
        for name, kernel in self.kernels:
            self.library.impl(name, kernel)

    def enter(self) -> None:
        with self.lock:
            self.depth += 1
            if self.library is not None:
                self.library._destroy()
                self.library = None

    def leave(self) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                self.register()


_withdrawn = _WithdrawnInTransforms()
enter_transform, leave_transform = _withdrawn.enter, _withdrawn.leave


def register_inplace(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    known: set[str] = set()
    for name in _NAMES:
        packet = getattr(aten, f"{name}_")
        for overload in packet.overloads():
            inplace = getattr(packet, overload)
            functional = _OTHER_NAMES.get(inplace, getattr(getattr(aten, name), overload, None))
            if functional is not None and overload != "t":
                known.add(_register(library, inplace, functional, _update_tensor))
    for functional in FOREACH:
        name = functional._schema.name.removeprefix("aten::")
        packet = getattr(aten, f"{name}_", None)
        op = getattr(packet, functional._overloadname, None)
        if op is not None:
            known.add(_register(library, op, functional, _update_list))
    _withdrawn.register()
    register_inplace_replacements(library)
    register_overlapping_writes(library, known | REPLACED)


def _register(
    library: torch.library.Library,
    op: Any,
    functional: Any,
    update: Any,
) -> str:
    recorded = op_of(functional)
    returns = len(op._schema.returns) > 0
    otherwise = inplace_kernel(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if update(recorded, args, kwargs):
            return args[0] if returns else None
        return otherwise(*args, **kwargs)

    full = op.name().removeprefix("aten::")
    if op in _TAKE_NUMBERS:
        _withdrawn.kernels.append((full, kernel))
    else:
        library.impl(full, kernel)
    return full


def _update_tensor(op: Op, args: Any, kwargs: Any) -> bool:
    """Update `args[0]` by one op; False if it has to go the usual way."""
    return _update(op, (args[0],), args, kwargs)


def _update_list(op: Op, args: Any, kwargs: Any) -> bool:
    """Update each tensor of the list `args[0]`."""
    return _update(op, args[0], args, kwargs)


def _update(op: Op, targets: Sequence[torch.Tensor], args: Any, kwargs: Any) -> bool:
    try:
        grad = torch.is_grad_enabled()
        leaves = [leaf_of(target, grad) for target in targets]
        listed = type(args[0]) is list
        inside = [leaves if listed else leaves[0], *[argument(a, grad) for a in args[1:]]]
        named = {name: argument(value, grad) for name, value in kwargs.items()} if kwargs else {}
    except Unfit:
        return False
    values = compute(op, targets, leaves, inside, named)
    if values is None:
        return False
    for value, leaf in zip(values, leaves, strict=True):
        own = leaf.value.meta
        if value.meta is not own and not _fits(value.meta, own):
            return False
    store(targets, leaves, values)
    return True


def _fits(result: Meta, own: Meta) -> bool:
    """Whether a result has the shape and dtype of the tensor that is to have its numbers.

    Functionalization would convert one that does not fit; eager PyTorch refuses it.
    """
    if result.shape != own.shape:
        raise RuntimeError(
            f"output with shape {list(own.shape)} doesn't match the broadcast shape "
            f"{list(result.shape)}"
        )
    if not torch.can_cast(result.dtype, own.dtype):
        raise RuntimeError(operands.no_cast(result.dtype, own.dtype))
    return result.dtype is own.dtype
