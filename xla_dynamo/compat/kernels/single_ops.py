"""Single ops for which PyTorch's own kernels do not do on the device: lengths, a gradient, prims.

The lengths of a CTC loss may be on the CPU; they are moved to the device.

PyTorch's backward of `_fft_r2c` notes where the sizes of the incoming gradient lie, uses the
gradient, and reads them. Where the gradient is a view of a tensor that was written to (or came from
the CPU), its first use applies that write and frees the tensor that held the sizes. A hook applies
the write before.

PyTorch's functionalization knows no views and in-place ops of torch.prims: they are run by the aten
ops that they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from xla_dynamo.compat.values.functionalization import transformed
from xla_dynamo.compat.values.torch_private import PRIMS, Key, is_functional, sync

from .redispatch import redispatch

aten = torch.ops.aten
_COMPOSITE = Key.CompositeImplicitAutograd


def register_single_ops(library: torch.library.Library, prims: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA, in namespaces aten and prims."""
    library.impl("ctc_loss.Tensor", _ctc_loss)
    library.impl("tensor_split.tensor_indices_or_sections", _tensor_split)
    library.impl("_fft_r2c", _fft_r2c)
    for name in PRIMS:
        op = getattr(getattr(torch.ops.prims, name, None), "default", None)
        if op is not None and any(result.alias_info for result in op._schema.returns):
            prims.impl(name, op.impl_aten)


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    *options: object,
) -> torch.Tensor:
    """PyTorch's ctc_loss, with targets and lengths moved to the device of `log_probs`."""
    device = log_probs.device
    lengths = (input_lengths.to(device), target_lengths.to(device))
    op = aten.ctc_loss.Tensor
    return op._op_dk(_COMPOSITE, log_probs, targets.to(device), *lengths, *options)


def _tensor_split(
    input: torch.Tensor, indices_or_sections: torch.Tensor, dim: int = 0
) -> list[torch.Tensor]:
    """PyTorch's tensor_split; indices on the device are read."""
    op = aten.tensor_split.tensor_indices_or_sections
    return op._op_dk(_COMPOSITE, input, indices_or_sections.cpu(), dim)


def _fft_r2c(
    x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> torch.Tensor:
    result = redispatch(aten._fft_r2c.default, (x, dim, normalization, onesided), {})
    if result.requires_grad and not transformed():
        result.register_hook(_take_in_writes)
    return result


def _take_in_writes(gradient: torch.Tensor) -> None:
    if is_functional(gradient):
        sync(gradient)
