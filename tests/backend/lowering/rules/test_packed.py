"""Packed sequences: the rules against the ops' own bodies, and each op as the other's gradient."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check
from xla_dynamo.backend.ops.packed import pack_rows, pad_rows

ops = torch.ops.xla_dynamo


@pytest.mark.parametrize("lengths", [[4, 2, 1], [4, 4, 4], [1, 1, 1], [2, 3, 0]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_rules(lengths: list[int], dtype: torch.dtype) -> None:
    each, count = torch.tensor(lengths), sum(lengths)
    for shape in [(4, 3), (4, 3, 2), (4, 3, 2, 2)]:
        x = torch.arange(torch.Size(shape).numel()).view(shape).to(dtype)
        check(ops.pack_rows.default, x, each, count)
        for steps in (4, 8):
            check(ops.pad_rows.default, pack_rows(x, each, count), each, steps, -1.5)


def test_order_is_pytorchs() -> None:
    lengths, x = torch.tensor([4, 2, 1]), torch.randn(4, 3, 2)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
    rows = pack_rows(x, lengths, 7)
    torch.testing.assert_close(rows, packed.data)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, padding_value=2)
    torch.testing.assert_close(pad_rows(rows, lengths, 4, 2.0), padded)


def test_gradients() -> None:
    lengths = torch.tensor([3, 2])
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: pack_rows(x, lengths, 5), x)
    torch.autograd.gradcheck(lambda rows: pad_rows(rows, lengths, 4, 1.0), rows)


def test_no_rows() -> None:
    nobody = torch.zeros(3, dtype=torch.int64)
    check(ops.pack_rows.default, torch.ones(2, 3, 1), nobody, 0)
    check(ops.pad_rows.default, torch.ones(0, 1), nobody, 2, 7.0)
