"""What the host does between two programs of one graph: read a number, view memory. No computing.

They split a graph as ops do that run on the CPU, but they are not counted among those: reading a
number is what `.item()` means, and the others make views.
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
    # A copy, where something is left out: a view would keep all of it.
    part = padded if value == padded.shape[dim] else padded.narrow_copy(dim, 0, value)
    return part.t() if transposed else part


def memory(x: Tensor, length: int, offset: int, absolute: bool) -> Tensor:
    """1-d view of the memory that `x` is a part of, from an element on: of all, or of its own.

    Raises:
        RuntimeError: there is not that much memory.
    """
    if absolute:
        return x.as_strided((length,), (1,), offset)
    return strided(x, (length,), (1,), offset)


def strided(x: Tensor, size: Sequence[int], stride: Sequence[int], start: int) -> Tensor:
    """as_strided from the element `start` on of memory that begins where `x` does.

    Not by storage_offset(), which is 0 for all tensors of xla devices.
    """
    reach = start if 0 in size else start + 1  # nothing may begin where the memory ends
    origin = x.as_strided((reach,), (1,))[start:] if start else x
    return origin.as_strided(size, stride)


_STEPS = frozenset({size, leading, memory, torch.ops.aten._local_scalar_dense.default})


def is_host_step(node: Node) -> bool:
    """Whether `node` is run by the host, whatever the device."""
    if node.op != "call_function":
        return False
    # A view of a size or at a place that a number decides: a result has to be in that place.
    return node.target in _STEPS or ("unbacked_bindings" in node.meta and is_view(node))
