"""Ops that the host runs between two programs of a graph: it reads a value, or views memory.

Like ops that run on the CPU they split the graph, but they are not counted as fallbacks: reading a
value is what `.item()` means, and views compute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import Node

from .fx import is_view


def size(count: Tensor, complaint: str) -> int:
    """The value of a 0-d integer tensor.

    Raises:
        RuntimeError: it is negative; the text is `complaint`.
    """
    value = int(count)
    if value < 0:
        raise RuntimeError(complaint)
    return value


def leading(padded: Tensor, count: Tensor, dim: int = 0, transposed: bool = False) -> Tensor:
    """The first `count` (0-d) elements of `padded` along `dim`; of a matrix, also transposed."""
    value = int(count)
    # A copy where something is left out: a view would keep the memory of all of it.
    valid = padded if value == padded.shape[dim] else padded.narrow_copy(dim, 0, value)
    return valid.t() if transposed else valid


def memory(x: Tensor, length: int, offset: int, absolute: bool) -> Tensor:
    """1-d view of `length` elements of the memory that `x` is a view of.

    offset: counts from the beginning of that memory if `absolute`, else from the beginning of `x`.

    Raises:
        RuntimeError: the memory ends before.
    """
    if absolute:
        return x.as_strided((length,), (1,), offset)
    return strided(x, (length,), (1,), offset)


def strided(x: Tensor, size: Sequence[int], stride: Sequence[int], start: int) -> Tensor:
    """as_strided whose offset `start` counts from the beginning of `x`.

    It does not use storage_offset(), which is 0 for all tensors of xla devices.
    """
    reach = start if 0 in size else start + 1  # nothing may begin at the end of the memory
    origin = x.as_strided((reach,), (1,))[start:] if start else x
    return origin.as_strided(size, stride)


_STEPS = frozenset({size, leading, memory, torch.ops.aten._local_scalar_dense.default})


def is_host_step(node: Node) -> bool:
    """Whether `node` is run by the host, whatever the device."""
    if node.op != "call_function":
        return False
    # A view whose size or offset is data: a result has to be at that offset.
    return node.target in _STEPS or ("unbacked_bindings" in node.meta and is_view(node))
