"""In-place ops outside autograd: an optimizer's updates, running statistics.

PyTorch's functionalization runs each in-place op a second time on meta tensors to check it; for a
list of parameters that is most of a step's time in Python. Here the functional op is recorded at
once and the tensor's leaf gets the new value. That holds where nothing is differentiated and the
result has the tensor's own shape and dtype; every other call is redispatched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from xla_dynamo.backend.decompositions.foreach import FOREACH
from xla_dynamo.backend.lowering import operands
from xla_dynamo.compat.values.forks import fork_safe
from xla_dynamo.compat.values.op_table import op_of
from xla_dynamo.compat.values.values import Meta

from .direct_update import update
from .inplace_views import REPLACED, register_inplace_views
from .overlapping_writes import inplace_kernel, register_overlapping_writes

aten = torch.ops.aten

_NAMES = (
    "abs add addcdiv addcmul clamp clamp_max clamp_min div exp fill floor lerp log masked_fill mul "
    "neg pow reciprocal relu round rsqrt sigmoid sign sqrt sub tanh zero"
)

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
    for op, functional in _pairs():
        full = op.name().removeprefix("aten::")
        known.add(full)
        if op in _TAKE_NUMBERS:
            _withdrawn.kernels.append((full, _kernel(op, functional)))
        else:
            library.impl(full, _kernel(op, functional))
    _withdrawn.register()
    register_inplace_views(library)
    register_overlapping_writes(library, known | REPLACED)


def _pairs() -> Iterator[tuple[Any, Any]]:
    """In-place ops, each with the op that gives its result."""
    for name in _NAMES.split():
        packet = getattr(aten, f"{name}_")
        for overload in packet.overloads():
            op = getattr(packet, overload)
            functional = _OTHER_NAMES.get(op, getattr(getattr(aten, name), overload, None))
            if functional is not None and overload != "t":
                yield op, functional
    for functional in FOREACH:
        packet = getattr(aten, f"{functional._schema.name.removeprefix('aten::')}_", None)
        op = getattr(packet, functional._overloadname, None)
        if op is not None:
            yield op, functional


def _kernel(op: Any, functional: Any) -> Callable[..., Any]:
    recorded = op_of(functional)
    returns = len(op._schema.returns) > 0
    listed = functional in FOREACH
    otherwise = inplace_kernel(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if update(recorded, args[0] if listed else args[:1], args, kwargs, _fits):
            return args[0] if returns else None
        return otherwise(*args, **kwargs)

    return kernel


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
