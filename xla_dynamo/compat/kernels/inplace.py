"""In-place ops outside autograd: an optimizer's updates, running statistics.

PyTorch's functionalization runs each in-place op a second time on meta tensors to check it; for a
list of parameters in Python that is most of a step. Here the functional op is recorded at once and
the tensor's leaf gets the new value. It applies where nothing is differentiated and the result has
the tensor's own shape and dtype; everything else goes the usual way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.backend.decompositions.foreach import FOREACH
from xla_dynamo.backend.lowering import operands
from xla_dynamo.compat.values.op_table import Op, describe
from xla_dynamo.compat.values.values import Meta

from .direct_update import Unfit, argument, compute, leaf_of, store
from .inplace_replacements import REPLACED, register_replaced
from .overlapping_writes import Slow, Straight, careful, register_overlaps

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

# Whose functional form has another overload name.
_OTHER_NAMES = {
    aten.pow_.Scalar: aten.pow.Tensor_Scalar,
    aten.pow_.Tensor: aten.pow.Tensor_Tensor,
}

# Which take a Python number for a tensor.
_TAKE_NUMBERS = {
    aten.add_.Tensor,
    aten.div_.Tensor,
    aten.div_.Tensor_mode,
    aten.mul_.Tensor,
    aten.sub_.Tensor,
}


class _Apart:
    """Kernels that are taken back while a gradient of torch.func is computed.

    There every argument is wrapped, also a number that stands for a tensor, and PyTorch fails to
    hand that to a kernel in Python.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
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


_apart = _Apart()
enter_transform, leave_transform = _apart.enter, _apart.leave


def install() -> None:
    """Let forked processes use transforms: whoever held the lock is not in them."""
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    _apart.lock = threading.Lock()


def register_inplace(library: torch.library.Library, slow: Slow, straight: Straight) -> None:
    """Register the kernels; `slow(op, args, kwargs)` is the way that PyTorch has for `op`.

    `straight(op)(*args)` is the same, for the device's own tensors and outside transforms.
    """
    known: set[str] = set()
    ways = slow, straight
    for name in _NAMES:
        packet = getattr(aten, f"{name}_")
        for overload in packet.overloads():
            inplace = getattr(packet, overload)
            form = _OTHER_NAMES.get(inplace, getattr(getattr(aten, name), overload, None))
            if form is not None and overload != "t":
                known.add(_register(library, inplace, form, _one, ways))
    for form in FOREACH:
        name = form._schema.name.removeprefix("aten::")
        packet = getattr(aten, f"{name}_", None)
        op = getattr(packet, form._overloadname, None)
        if op is not None:
            known.add(_register(library, op, form, _many, ways))
    _apart.register()
    register_replaced(library, slow)
    register_overlaps(library, known | REPLACED, slow, straight)


def _register(
    library: torch.library.Library, op: Any, form: Any, update: Any, ways: tuple[Slow, Straight]
) -> str:
    recorded = describe(form)
    returns = len(op._schema.returns) > 0
    otherwise = careful(op, *ways)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if update(recorded, args, kwargs):
            return args[0] if returns else None
        return otherwise(*args, **kwargs)

    full = op.name().removeprefix("aten::")
    if op in _TAKE_NUMBERS:
        _apart.kernels.append((full, kernel))
    else:
        library.impl(full, kernel)
    return full


def _one(op: Op, args: Any, kwargs: Any) -> bool:
    """Update `args[0]` by one op; False if it has to go the usual way."""
    return _update(op, (args[0],), args, kwargs)


def _many(op: Op, args: Any, kwargs: Any) -> bool:
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
