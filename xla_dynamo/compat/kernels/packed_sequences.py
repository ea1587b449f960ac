"""Kernels for ops whose lengths are on the CPU.

PyTorch keeps the lengths of packed sequences on the CPU even if the tensors are on a device, so the
rows to take are known before anything runs: packing is one gather, which autograd follows. The
lengths of a CTC loss may be on the CPU too; they are moved to the device.
"""

from __future__ import annotations

import torch

from xla_dynamo.compat.values.torch_private import Key

aten = torch.ops.aten
_COMPOSITE = Key.CompositeImplicitAutograd


def register_packed_sequences(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    library.impl("_pack_padded_sequence", pack_padded_sequence)
    library.impl("ctc_loss.Tensor", ctc_loss)
    library.impl("tensor_split.tensor_indices_or_sections", tensor_split)


def pack_padded_sequence(
    input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Eager packs the indices of the rows on the CPU, and checks `lengths`; the device gathers."""
    data = input.transpose(0, 1) if batch_first else input
    indices = torch.arange(data.shape[0] * data.shape[1]).view(data.shape[:2])
    index, sizes = aten._pack_padded_sequence(indices, lengths.to("cpu", torch.int64), False)
    rows = data.reshape(-1, *data.shape[2:])
    return rows.index_select(0, index.to(input.device)), sizes


def ctc_loss(
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


def tensor_split(
    input: torch.Tensor, indices_or_sections: torch.Tensor, dim: int = 0
) -> list[torch.Tensor]:
    """PyTorch's tensor_split; indices on the device are read."""
    op = aten.tensor_split.tensor_indices_or_sections
    return op._op_dk(_COMPOSITE, input, indices_or_sections.cpu(), dim)
