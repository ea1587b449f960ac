"""Ops with data-dependent shapes (nonzero, masked indexing) on lazy tensors.

The device computes the result padded to its largest size, and the number of valid elements (see
backend.decompositions.dynamic_shapes). Reading that number is a barrier; the slice of the padded
result belongs to the next trace, which is compiled for its size in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.backend.decompositions.dynamic_shapes import padded
from xla_dynamo.compat.recording import eager_strides
from xla_dynamo.compat.values.op_table import Op, op_of
from xla_dynamo.compat.values.values import leaf, meta, restrided

from . import sync

aten = torch.ops.aten

Record = Callable[[Op, Any, Any], Any]


class OnDevice:
    """Steps that are recorded."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def take(self, op: Op, args: Any, kwargs: Any) -> Any:
        """The result of `op`; NotImplemented if its shape does not depend on data."""
        how = padded(op.func)
        if how is None:
            return NotImplemented
        result = how(self, *args, **kwargs)
        if op.func is aten.index.Tensor:
            picked = result.value
            return leaf(restrided(picked, eager_strides.of_masked(args[0], args[1], picked.meta)))
        return result

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        return self._record(op_of(op), args, kwargs)

    def value(self, operand: Any) -> torch.Tensor:
        return operand

    def size(self, count: Any, complaint: str) -> int:
        value = int(sync.download(count.value))
        if value < 0:
            raise RuntimeError(complaint)
        return value

    def leading(self, padded: Any, count: Any, dim: int = 0, transposed: bool = False) -> Any:
        size = int(sync.download(count.value))
        part = padded
        if size < padded.shape[dim]:
            part = self.call(aten.slice.Tensor, padded, dim, 0, size)
            # No view of the padded result.
            part = leaf(restrided(part.value, meta(part.shape, part.dtype)))
        return self.call(aten.t.default, part) if transposed else part
