"""Packed sequences: the rows that count of a padded [time, batch, ...] tensor, time by time.

How many rows each sequence has is data, so that a program serves all batches of a size;
lowering/rules/packed.py lowers pack_rows and pad_rows. Each is the gradient of the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd

from .registration import op


def _counts(steps: int, lengths: Tensor) -> Tensor:
    return torch.arange(steps, device=lengths.device)[:, None] < lengths


@op(
    "(Tensor x, Tensor lengths, SymInt count) -> Tensor",
    fake=lambda x, lengths, count: x.new_empty([count, *x.shape[2:]]),
)
def pack_rows(x: Tensor, lengths: Tensor, count: int) -> Tensor:
    """The first lengths[b] of the steps of sequence b, [count, ...], in the order of `x`.

    x: [time, batch, ...]; lengths: int64 [batch], whose sum is `count`.
    """
    return x[_counts(x.shape[0], lengths)].contiguous()


@op(
    "(Tensor rows, Tensor lengths, SymInt steps, float value) -> Tensor",
    fake=lambda rows, lengths, steps, _: rows.new_empty([steps, *lengths.shape, *rows.shape[1:]]),
)
def pad_rows(rows: Tensor, lengths: Tensor, steps: int, value: float) -> Tensor:
    """The [steps, batch, ...] tensor of which pack_rows gives `rows`, and `value` elsewhere."""
    padded = rows.new_full([steps, *lengths.shape, *rows.shape[1:]], value)
    return padded.index_put((_counts(steps, lengths),), rows)


def padded_again(x: Tensor, lengths: Tensor, steps: int, value: float) -> Tensor:
    """What pad_rows gives for the rows that pack_rows gives for `x`, however many there are."""
    counts = _counts(steps, lengths)
    missing = [0, 0] * (x.dim() - 1) + [0, max(steps - x.shape[0], 0)]
    x = torch.constant_pad_nd(x[:steps], missing)
    counts = counts.view(*counts.shape, *[1] * (x.dim() - 2))
    return torch.where(counts, x, x.new_full((), value)).contiguous()


@op(
    "(Tensor x, Tensor lengths, SymInt steps, float value) -> Tensor",
    fake=lambda x, lengths, steps, _: x.new_empty([steps, *x.shape[1:]]),
)
def repad_rows(x: Tensor, lengths: Tensor, steps: int, value: float) -> Tensor:
    """The lazy device records it for both ops: see compat/execution/packed_rows.py."""
    return padded_again(x, lengths, steps, value)


def _save(ctx: Any, inputs: tuple, output: Tensor) -> None:
    x, lengths, *_ = inputs
    ctx.size = x.shape[0]
    ctx.save_for_backward(lengths)


def _packed_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return pad_rows(grad, *ctx.saved_tensors, ctx.size, 0.0), None, None


def _padded_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return pack_rows(grad, *ctx.saved_tensors, ctx.size), None, None, None


register_autograd("xla_dynamo::pack_rows", _packed_backward, setup_context=_save)
register_autograd("xla_dynamo::pad_rows", _padded_backward, setup_context=_save)
