"""Ops that take lengths on the CPU -> plain ops on the device.

PyTorch keeps the lengths of packed sequences on the CPU, also for tensors on a device: which rows
to take is known before anything runs, so packing is one gather, and autograd follows it. The
lengths of a CTC loss may be on the CPU; its arithmetic with them is on the device.
"""

from __future__ import annotations

import torch

from xla_dynamo.compat.values.torch_private import Key

aten = torch.ops.aten
_COMPOSITE = Key.CompositeImplicitAutograd


def register_sequences(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    library.impl("_pack_padded_sequence", pack_padded_sequence)
    library.impl("ctc_loss.Tensor", ctc_loss)
    library.impl("tensor_split.tensor_indices_or_sections", tensor_split)


def pack_padded_sequence(
    input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of `input` (T x B x ..., or B x T x ... if `batch_first`) that `lengths` keeps.

    `lengths` (B, on the CPU) must be sorted in decreasing order. Returns the packed rows and the
    number of rows of each step, on the CPU.

    Raises:
        RuntimeError: lengths are not as described.
    """
    data = input.transpose(0, 1) if batch_first else input
    batch = data.shape[1]
    sizes = [int(length) for length in lengths.cpu()]
    if len(sizes) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size="
            f"{batch})"
        )
    if not sizes or min(sizes) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if sizes != sorted(sizes, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    per_step = [sum(length > step for length in sizes) for step in range(sizes[0])]
    rows = [step * batch + row for step, count in enumerate(per_step) for row in range(count)]
    index = torch.tensor(rows, dtype=torch.int64).to(input.device)
    packed = data.reshape(-1, *data.shape[2:]).index_select(0, index)
    return packed, torch.tensor(per_step, dtype=torch.int64)


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
    """PyTorch's tensor_split; where to split is read, if it is on the device."""
    op = aten.tensor_split.tensor_indices_or_sections
    return op._op_dk(_COMPOSITE, input, indices_or_sections.cpu(), dim)
