"""The real Fourier transform's gradient, kept from reading the shape of a tensor that is gone.

PyTorch's backward of `_fft_r2c` notes where the sizes of the incoming gradient lie, uses the
gradient, and reads them. Where the gradient is a view of a tensor that was written to (or came from
the CPU), its first use takes in that write and frees what held the sizes. Here that is done before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.compat.values.functionalization import transformed
from xla_dynamo.compat.values.torch_private import is_functional, sync

aten = torch.ops.aten


def register_fourier(
    library: torch.library.Library, redispatch: Callable[[Any, Any, Any], torch.Tensor]
) -> None:
    """Register the kernel for dispatch key AutogradXLA; `redispatch` runs PyTorch's own."""

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
