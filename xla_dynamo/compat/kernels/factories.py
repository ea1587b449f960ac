"""Factory functions with device=xla (torch.zeros, torch.arange, ...) as recorded ops.

Each is a kernel for dispatch key XLA. PyTorch composes many of them of `empty` and in-place ops;
here each is one recorded op instead of two or three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.compat.execution import automatic_barriers, dispatch, sync
from xla_dynamo.compat.recording import shape_inference
from xla_dynamo.compat.recording.pending import trace
from xla_dynamo.compat.recording.trace import trace_of
from xla_dynamo.compat.values.op_table import op_of
from xla_dynamo.compat.values.torch_private import Key, is_excluded, wrapped
from xla_dynamo.compat.values.values import Value, leaf_of, meta, tensor

aten = torch.ops.aten

# Made on the device by one recorded op; the keyword arguments are those of the schema.
_RECORDED = (
    *(aten.arange.default, aten.arange.start, aten.arange.start_step),
    *(aten.eye.default, aten.eye.m, aten.tril_indices.default, aten.triu_indices.default),
    *(aten.full.default, aten.ones.default, aten.zeros.default, aten.scalar_tensor.default),
    *(aten.linspace.default, aten.logspace.default),
    *(aten.rand.default, aten.randn.default, aten.randperm.default),
    *(aten.randint.default, aten.randint.low),
)


def register_factories(library: torch.library.Library) -> None:
    """Register the kernels."""
    library.impl("empty.memory_format", _empty)
    library.impl("empty_strided", _empty)
    library.impl("_copy_from", _copy_from)
    library.impl("_efficientzerotensor", _recorder(aten.zeros.default))
    for func in _RECORDED:
        library.impl(func.name().removeprefix("aten::"), _recorder(func))


def _empty(
    size: Any, stride: Any = None, *, device: Any, dtype: Any = None, **options: Any
) -> torch.Tensor:
    made = meta(torch.Size(size), dtype or torch.get_default_dtype(), stride)
    if options.get("memory_format") is not None:
        made = shape_inference.like(made, memory_format=options["memory_format"])
    return tensor(Value(made, trace(device)))


def _copy_from(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """torch.tensor(data, device=xla) fills, below functionalization, what `_empty` just made."""
    leaf = leaf_of(target)
    assert leaf is not None
    host = source.to(target.dtype).expand(target.shape)
    leaf.value = sync.upload(trace_of(leaf.value), host, leaf.value.meta)
    return target


def _recorder(func: Any) -> Callable[..., Any]:
    op = op_of(func)

    def kernel(*args: Any, **kwargs: Any) -> torch.Tensor:
        home = trace(kwargs.pop("device"))
        if op.random and automatic_barriers.runs_each_op():
            # In torch_xla it writes to memory that a program of its own has made.
            home.record(op_of(aten.zeros.default), (func(*args, device="meta").shape,), {})
        kwargs.pop("pin_memory", None)
        kwargs.pop("layout", None)
        made = home.record(op, args, kwargs)
        if made is shape_inference.EAGER:
            made = dispatch.run_now(home, op, args, kwargs)
        # Called by functionalization, which wraps it. A mode that watches every op (a counter of
        # FLOPs, say) stands below Conjugate, too: nobody wraps what it makes.
        if is_excluded(Key.Functionalize) and not is_excluded(Key.Conjugate):
            return made
        return wrapped(made)

    return kernel
