"""Keeps the gradient of the real Fourier transform from reading the shape of a freed tensor.

PyTorch's backward of `_fft_r2c` notes where the sizes of the incoming gradient lie, uses the
gradient, and reads them. Where the gradient is a view of a tensor that was written to (or came from
the CPU), its first use applies that write and frees the tensor that held the sizes. A hook applies
the write before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from xla_dynamo.compat.values.functionalization import transformed
from xla_dynamo.compat.values.torch_private import is_functional, sync

from .redispatch import redispatch

aten = torch.ops.aten


def register_fft(library: torch.library.Library) -> None:
    """Register the kernel for dispatch key AutogradXLA."""

    def fft_r2c(
        x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool
    ) -> torch.Tensor:
        result = redispatch(aten._fft_r2c.default, (x, dim, normalization, onesided), {})
        if result.requires_grad and not transformed():
            result.register_hook(_take_in_writes)
        return result

    library.impl("_fft_r2c", fft_r2c)


def _take_in_writes(gradient: torch.Tensor) -> None:
    if is_functional(gradient):
        sync(gradient)
