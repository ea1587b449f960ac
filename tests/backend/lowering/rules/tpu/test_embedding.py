"""Sums of rows by index in their forms for TPUs, computed on the CPU, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import run
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules.tpu import embedding

aten = torch.ops.aten


@pytest.mark.parametrize("few", [0, 1024], ids=["runs", "product"])
@pytest.mark.parametrize(("padding", "by_frequency"), [(-1, False), (3, False), (-1, True)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gradient_of_an_embedding(
    dtype: torch.dtype,
    padding: int,
    by_frequency: bool,
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedding, "_FEW", few)
    indices = torch.randint(9, (4, 15))  # each many times: sums in 16 bits would be coarse
    grad = torch.randn(4, 15, 8).to(dtype)
    args = (indices, 70, padding, by_frequency)
    with lowering_for(Target("tpu")):
        got = run(aten.embedding_dense_backward.default, grad, *args)
    want = aten.embedding_dense_backward.default(grad.float(), *args)
    torch.testing.assert_close(got.to(dtype), want.to(dtype))


def test_indices_that_are_nowhere() -> None:
    """As in the plain form, they add to no row."""
    rows, indices = torch.ones(3, 2).bfloat16(), torch.tensor([1, 5, 7])
    for size in (5, 2):
        with lowering_for(Target("tpu")):
            got = run(aten.embedding_dense_backward.default, rows, indices, size, -1, False)
        assert got.sum(1).tolist() == [2 * (row == 1) for row in range(size)]
