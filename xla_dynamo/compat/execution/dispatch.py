"""What each op on tensors of the lazy device does: most are recorded, some are answered at once.

PyTorch calls `dispatch` for every functional aten op that reaches a `Leaf`. Nearly all are appended
to the device's trace. The handlers below are for the others: transfers, aliases, ops that read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend import metrics as backend_metrics
from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.recording import metrics, pending, shape_inference
from xla_dynamo.compat.recording.trace import ForeignTensor, Trace, find, trace_of
from xla_dynamo.compat.values import describe, storage
from xla_dynamo.compat.values.functionalization import honouring_lazy_bits
from xla_dynamo.compat.values.op_table import OPS, Op, handles, op_of
from xla_dynamo.compat.values.source_location import user_location
from xla_dynamo.compat.values.values import Leaf, leaf, restrided

from . import cpu_tensors, dynamic_shapes, sync

aten = torch.ops.aten


def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """`Leaf.__torch_dispatch__`."""
    op = OPS.get(id(func)) or op_of(func)
    if op.handler is not None:
        return op.handler(op, args, kwargs or {})
    return record(op, args, kwargs)


def record(op: Op, args: Any, kwargs: Any) -> Any:
    """Append `op` to the trace of its first tensor, or run it now if it depends on values."""
    first = args[0] if args else None
    trace: Any = first.value.home if type(first) is Leaf else find(args, kwargs or {})
    try:
        result = trace.record(op, args, kwargs or {})
    except ForeignTensor:
        args = cpu_tensors.admit(trace, op, args)
        result = trace.record(op, args, kwargs or {})
    if result is not shape_inference.EAGER:
        return result
    result = _dynamic_shapes.take(op, args, kwargs or {})
    return run_now(trace, op, args, kwargs or {}) if result is NotImplemented else result


_dynamic_shapes = dynamic_shapes.OnDevice(record)


def run_now(trace: Trace, op: Op, args: Any, kwargs: Any) -> Any:
    """Run `op` on the CPU on the values of its arguments; results go back to the device."""

    def to_device(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        return leaf(sync.upload(trace, result))

    args, kwargs = pytree.tree_map(sync.to_cpu, (list(args), dict(kwargs)))
    return pytree.tree_map(to_device, on_cpu(op.func, args, kwargs))


def on_cpu(func: Any, args: Any, kwargs: Any) -> Any:
    """The results of an op for CPU tensors, which stand for some of the device: a fallback."""
    with honouring_lazy_bits():
        results = func(*args, **kwargs)
    for result in pytree.tree_leaves(results):
        if isinstance(result, torch.Tensor) and not storage.is_dense(result):
            raise storage.refuse(result.layout, result.dtype, func)
    metrics.count_fallback(func)
    _warn_of_fallback(func)
    return results


@optional(None)
def _warn_of_fallback(func: Any) -> None:
    """Say once for each line that an op runs on the CPU: the op, the line, why, and what to do."""
    location = user_location()
    values = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}
    why = "PyTorch cannot tell the shape of its result beforehand"
    if values:
        why = "the shape of its result depends on values, which XLA cannot express"
    elif func._schema.is_mutable:
        why = "it writes to its arguments, and only its own kernel knows what"
    where, remedy = describe.where(location), "Do it outside the training step if you can."
    text = (
        f"{describe.op_name(func)} at {where} runs on the CPU: {why}. "
        f"Each time, this waits for the device and copies operands and results. {remedy}"
    )
    backend_metrics.record_fallback(
        backend_metrics.FallbackRecord(
            func._schema.name, where, f"{why[0].upper()}{why[1:]}.", remedy
        )
    )
    backend_metrics.warn_once((func, location), text, backend_metrics.FallbackWarning)


@handles(aten._propagate_xla_data.default)
def _propagate_data(op: Op, args: Any, kwargs: Any) -> None:
    return None


@handles(aten.is_pinned.default)
def _is_pinned(op: Op, args: Any, kwargs: Any) -> bool:
    """Only memory of the host is; torch.distributed.checkpoint asks for each tensor."""
    return False


@handles(
    aten.detach.default,
    aten.detach_copy.default,
    aten.alias.default,
    aten.alias_copy.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
)
def _alias(op: Op, args: Any, kwargs: Any) -> Any:
    """Values do not change: an alias is another leaf of the same value."""
    return leaf(args[0].value)


@handles(aten.view_copy.default, aten.expand_copy.default)
def _view(op: Op, args: Any, kwargs: Any) -> Any:
    """A view of the same sizes computes nothing: torch.tensor() makes one of what it uploads."""
    value, sizes = args[0].value, args[1]
    own = value.meta
    if own.strides is not None or len(sizes) != len(own.shape):
        return record(op, args, kwargs)
    same = all(given in (size, -1) for size, given in zip(own.shape, sizes, strict=True))
    return leaf(value) if same else record(op, args, kwargs)


@handles(aten._local_scalar_dense.default)
def _item(op: Op, args: Any, kwargs: Any) -> Any:
    metrics.count("aten::_local_scalar_dense")
    return sync.download(args[0].value).item()


@handles(aten._to_copy.default)
def _to_copy(op: Op, args: Any, kwargs: Any) -> Any:
    source = args[0]
    device = kwargs.get("device")
    dtype = kwargs.get("dtype")
    form = kwargs.get("memory_format")
    if device is None or device == source.value.home.device:
        own = source.value.meta
        if dtype is not None and dtype != own.dtype:
            settings = {"dtype": dtype} if form is None else {"dtype": dtype, "memory_format": form}
            return record(op, args, settings)
        return leaf(restrided(source.value, shape_inference.like(own, memory_format=form)))
    host = sync.download(source.value)
    if dtype is not None or form is not None:
        host = host.to(dtype=dtype, memory_format=form or torch.preserve_format)
    if device.type == "xla":
        return leaf(sync.upload(pending.trace(device), host))
    return host.to(device)


@handles(aten.copy.default)
def _copy(op: Op, args: Any, kwargs: Any) -> Any:
    """The new value of `target` after `target.copy_(source)`."""
    target, source = args[0], args[1]
    if type(target) is not Leaf:
        return target.copy(sync.download(source.value))
    to = target.value
    if type(source) is not Leaf or source.value.home is not to.home:
        host = source if type(source) is not Leaf else sync.download(source.value)
        host = host.to(to.meta.dtype).expand(to.meta.shape)
        return leaf(sync.upload(trace_of(to), host, to.meta))
    value, result = source.value, source
    if value.meta.dtype != to.meta.dtype:
        result = record(op_of(aten._to_copy.default), (result,), {"dtype": to.meta.dtype})
    if value.meta.shape != to.meta.shape:
        result = record(op_of(aten.expand.default), (result, list(to.meta.shape)), {})
    return leaf(restrided(result.value, to.meta))


@handles(aten.copy_.default)
def _copy_to_host(op: Op, args: Any, kwargs: Any) -> Any:
    """`cpu_tensor.copy_(xla_tensor)`: the one in-place op that is not made functional."""
    target, source = args[0], args[1]
    return target.copy_(sync.download(source.value) if type(source) is Leaf else source)


@handles(aten.native_batch_norm.default)
def _batch_norm(op: Op, args: Any, kwargs: Any) -> Any:
    """In training it updates the running statistics, which its schema does not say."""
    x, weight, bias, mean, var, training, momentum, eps = args
    if mean is None:
        functional = op_of(aten._native_batch_norm_legit.no_stats)
        return record(functional, (x, weight, bias, training, momentum, eps), {})
    functional = op_of(aten._native_batch_norm_legit_functional.default)
    *results, new_mean, new_var = record(functional, args, {})
    if training:
        cpu_tensors.take_statistics(new_mean, mean)
        cpu_tensors.take_statistics(new_var, var)
    return tuple(results)


@handles(aten.nansum.default)
def _nansum(op: Op, args: Any, kwargs: Any) -> Any:
    """PyTorch's shape inference takes no dimensions as none to reduce, its kernel as all."""
    if len(args) > 1 and not args[1]:
        args = (args[0], None, *args[2:])
    return record(op, args, kwargs)
