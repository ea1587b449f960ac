"""The op that writes results into the memory of tensors, in the middle of a program of the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from .registration import op


def write(values: Sequence[Tensor], addresses: Sequence[int]) -> None:
    """Copy each value to its address, row-major; values may be what is written over."""
    values = [x.contiguous() for x in values]  # XLA's are
    ranges = [(at, at + x.nbytes) for at, x in zip(addresses, values, strict=True)]
    values = [_copied(x) if _meets(x, ranges) else x for x in values]
    for value, address in zip(values, addresses, strict=True):
        copy(value, address)


def copy(x: Tensor, address: int) -> None:
    """Copy a row-major tensor to an address, in this thread alone.

    In a thread of XLA's, PyTorch would start threads of OpenMP's for that: then there are more of
    them than cores, libgomp's wait in the kernel instead of in a loop, and all kernels of the
    process with many short loops take twice the time (an LSTM's step 41 ms, so 74).
    """
    ctypes.memmove(address, x.data_ptr(), x.nbytes)


def _copied(x: Tensor) -> Tensor:
    made = torch.empty_like(x)
    copy(x, made.data_ptr())
    return made


def _meets(x: Tensor, ranges: Sequence[tuple[int, int]]) -> bool:
    start = x.data_ptr()
    return any(begin < start + x.nbytes and start < end for begin, end in ranges)


def _fakes(
    values: list[Tensor], others: list[Tensor], addresses: Tensor, first: int
) -> list[Tensor]:
    mark = torch.empty(1, dtype=torch.int32, device=addresses.device)
    return [mark, *(torch.empty_like(x) for x in others)]


@op(fake=_fakes)
def store(
    values: list[Tensor], others: list[Tensor], addresses: Tensor, first: int
) -> list[Tensor]:
    """Copy `others`, then write `values` to addresses[first:]: a mark that it is done, the copies.

    Everything is computed before.
    """
    copies = [x.clone() for x in others]
    write(values, addresses.tolist()[first : first + len(values)])
    return [torch.zeros(1, dtype=torch.int32, device=addresses.device), *copies]
