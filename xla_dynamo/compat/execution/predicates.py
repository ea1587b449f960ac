"""Ops that return a Python bool (torch.equal, torch.allclose): computed on the device, and read.

They end the trace, as `.item()` does; comparing sizes does not.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.values.op_table import Op, handles, op_of
from xla_dynamo.compat.values.values import Leaf

from .dispatch import record

aten = torch.ops.aten


@handles(aten.is_same_size.default)
def _is_same_size(op: Op, args: Any, kwargs: Any) -> bool:
    return args[0].shape == args[1].shape


@handles(aten._has_same_storage_numel.default)
def _has_same_storage_numel(op: Op, args: Any, kwargs: Any) -> bool:
    return args[0].numel() == args[1].numel()


@handles(aten.equal.default)
def _equal(op: Op, args: Any, kwargs: Any) -> bool:
    x, y = args
    return x.shape == y.shape and _all(_call(aten.eq.Tensor, x, y))


@handles(aten.allclose.default)
def _allclose(op: Op, args: Any, kwargs: Any) -> bool:
    empty = [torch.empty(0, dtype=x.dtype, device="cpu") for x in args[:2]]
    # Raises where eager refuses dtypes or tolerances.
    torch.allclose(empty[0], empty[1], *args[2:], **kwargs)
    return _all(record(op_of(aten.isclose.default), args, kwargs))


def _all(x: Leaf) -> bool:
    return bool(_call(aten._local_scalar_dense.default, _call(aten.all.default, x)))


def _call(func: Any, *args: Any) -> Any:
    op = op_of(func)
    return op.handler(op, args, {}) if op.handler is not None else record(op, args, {})
