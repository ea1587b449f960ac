"""Ops with out=: the op is computed, and its result copied to the given tensor.

PyTorch's functionalization would replace the tensor: a fraction would become an integer without a
word, and a write to an expanded tensor would be added up. Here a result that eager refuses for this
out= is refused, and a copy writes through views.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.lowering import operands
from xla_dynamo.compat.values import functionalization, torch_private
from xla_dynamo.compat.values.describe import two_devices
from xla_dynamo.compat.values.op_table import op_of
from xla_dynamo.compat.values.values import Meta

from .direct_update import update
from .redispatch import redispatch

# Ops that compute in the dtype of out=, if no other is given.
_IN_DTYPE_OF_OUT = frozenset({"cumprod", "cumsum", "mean", "nansum", "prod", "sum"})

# Ops that write to more than their results, which their schemas do not say.
_WRITE_MORE = ("batch_norm", "native_batch_norm", "_native_batch_norm", "cudnn_batch_norm")

# Ops that make a 1-d tensor, and keep the shape of an out= that has as many elements.
_ROWS = frozenset({"arange", "linspace", "logspace", "range"})
_FACTORIES = _ROWS | {"eye", "full", "ones", "zeros"}
_OPTIONS = ("dtype", "layout", "device", "pin_memory")


def register_out_variants(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    for op in functionalization.out_ops():
        name = op._schema.name.removeprefix("aten::")
        functional = _functional_overload(op, name)
        if functional is not None:
            make = _factory if name in _FACTORIES else _kernel
            library.impl(op.name().removeprefix("aten::"), make(op, functional))


def _functional_overload(op: Any, name: str) -> Any:
    """The overload that returns what `op` writes; None if there is none, or it is a list."""
    arguments = op._schema.arguments
    if name.startswith(_WRITE_MORE):
        return None
    if not all(isinstance(a.type, torch.TensorType) for a in arguments if a.is_out):
        return None
    ignored = _OPTIONS if name in _FACTORIES else ()
    wanted = [(a.name, str(a.type)) for a in arguments if not a.is_out]
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        other = getattr(packet, overload)
        given = other._schema.arguments
        taken = [(a.name, str(a.type)) for a in given if a.name not in ignored]
        if taken == wanted and not other._schema.is_mutable:
            return other
    return None


def _factory(op: Any, functional: Any) -> Callable[..., Any]:
    row = op._schema.name.removeprefix("aten::") in _ROWS

    def kernel(*args: Any, out: torch.Tensor) -> torch.Tensor:
        own = torch_private.is_functional(out) and not functionalization.transformed()
        if not own or out.requires_grad:
            return redispatch(op, args, {"out": out})
        result = functional(*args, dtype=out.dtype, device=out.device)
        _write(result.view(out.shape) if row and result.numel() == out.numel() else result, out)
        return out

    return kernel


def _kernel(op: Any, functional: Any) -> Callable[..., Any]:
    names = [each.name for each in op._schema.arguments if each.is_out]
    recorded = op_of(functional)
    adopts = op._schema.name.removeprefix("aten::") in _IN_DTYPE_OF_OUT
    simple = recorded.handler is None and torch.Tag.pointwise in functional.tags and len(names) == 1

    def kernel(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs[name] for name in names]
        rest = {name: value for name, value in kwargs.items() if name not in names}
        if simple and update(recorded, outs, args, rest, _fits):
            return outs[0]
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        own = all(map(torch_private.is_functional, outs)) and not functionalization.transformed()
        if any(out.device.type != "xla" for out in outs):
            raise _two_devices(*tensors)
        if not own or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            return redispatch(op, args, kwargs)  # raises, if there are gradients
        results = _results(functional, args, rest)
        if any(made.device != out.device for made, out in zip(results, outs, strict=True)):
            raise _two_devices(*results, *outs)
        if any(made.dtype != out.dtype for made, out in zip(results, outs, strict=True)):
            if operands.error_of_zeros(functional, args, rest) is None:
                reason = operands.error_of_zeros(op, args, kwargs)
                if reason is not None:
                    raise RuntimeError(reason)  # what eager raises for results of such dtypes
            if adopts and rest.get("dtype") is None:
                results = _results(functional, args, {**rest, "dtype": outs[0].dtype})
        for result, out in zip(results, outs, strict=True):
            if not torch.can_cast(result.dtype, out.dtype):
                raise RuntimeError(operands.no_cast(result.dtype, out.dtype))
        for result, out in zip(results, outs, strict=True):
            _write(result, out)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return kernel


def _fits(result: Meta, own: Meta) -> bool:
    return result.shape == own.shape and result.dtype is own.dtype


def _results(functional: Any, args: Any, kwargs: Any) -> Sequence[torch.Tensor]:
    """The results of an op without autocast, which has no casts for ops with out=."""
    if torch.is_autocast_enabled("xla"):
        with torch.autocast("xla", enabled=False):
            made = functional(*args, **kwargs)
    else:
        made = functional(*args, **kwargs)
    return [made] if isinstance(made, torch.Tensor) else made


def _two_devices(*tensors: torch.Tensor) -> RuntimeError:
    first, second, *_ = sorted({str(tensor.device) for tensor in tensors})
    return two_devices(first, second)


def _write(result: torch.Tensor, out: torch.Tensor) -> None:
    if result.shape != out.shape:
        if out.numel():
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(result.shape)}. This behavior is deprecated, and in a future PyTorch "
                "release outputs will not be resized unless they have zero elements. You can "
                "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with "
                "t.resize_(0).",
                UserWarning,
                stacklevel=3,
            )
        out.resize_(result.shape)
    out.copy_(result)
