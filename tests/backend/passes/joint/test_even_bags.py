"""Embedding bags of a table of indices: looked up without offsets, with eager's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.backend.graphs import context, ops, traced
from tests.like_eager.compiled import assert_like_eager
from xla_dynamo.backend.passes.joint.even_bags import look_up_even_bags

DTYPES = (torch.float32, torch.float64)


def weights(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(20, 3, dtype=dtype, requires_grad=True)


def rewritten(function: Callable[..., Tensor], *inputs: Tensor) -> list[str]:
    """The ops of forward and backward together after the pass."""

    def both(*inputs: Tensor) -> tuple[Tensor, ...]:
        out = function(*inputs)
        return (out, *torch.autograd.grad(out.sum(), inputs[-1]))

    module = traced(both, *inputs)
    look_up_even_bags(module.graph, context())
    return ops(module.graph)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_of_indices(mode: str, dtype: torch.dtype) -> None:
    def bags(indices: Tensor, weight: Tensor) -> Tensor:
        return F.embedding_bag(indices, weight, mode=mode).square()

    indices = torch.randint(20, (6, 4))
    found = rewritten(bags, indices, weights(dtype))
    assert not any("embedding_bag" in op for op in found)
    assert "arange.start_step" not in found
    assert_like_eager(bags, indices, weights(dtype))
    assert_like_eager(bags, torch.zeros(2, 3, dtype=torch.int64), weights(dtype))


def test_columns_of_a_larger_table() -> None:
    """What backward needs of the indices is a view of an argument."""

    def bags(indices: Tensor, weight: Tensor) -> Tensor:
        return F.embedding_bag(indices[:, 1], weight, mode="sum")

    indices = torch.randint(20, (6, 2, 4))
    assert "_unsafe_view.default" not in rewritten(bags, indices, weights())
    assert_like_eager(bags, indices, weights())


def test_batches_of_other_sizes() -> None:
    layer = torch.nn.EmbeddingBag(20, 3, mode="sum")

    def both(indices: Tensor) -> Tensor:
        return layer(indices[:, 1]) + layer(indices[:, 0] + 1)

    compiled = torch.compile(both, backend="xla")
    for rows in (6, 5, 9):
        indices = torch.randint(19, (rows, 2, 4))
        found, want = compiled(indices), both(indices)
        torch.testing.assert_close(found, want)
        torch.testing.assert_close(
            *(torch.autograd.grad(x.sum(), layer.weight) for x in (found, want))
        )


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "max"},
        {"padding_idx": 2},
        {"scale_grad_by_freq": True},
        {"mode": "sum", "per_sample_weights": torch.rand(6, 4)},
    ],
    ids=lambda options: next(iter(reversed(options))),
)
def test_others_stay(options: dict[str, Any]) -> None:
    def bags(indices: Tensor, weight: Tensor) -> Tensor:
        return F.embedding_bag(indices, weight, **options)

    found = rewritten(bags, torch.randint(20, (6, 4)), weights())
    assert any("embedding_bag" in op for op in found)


def test_bags_of_which_one_is_short_stay() -> None:
    def bags(indices: Tensor, weight: Tensor) -> Tensor:
        return F.embedding_bag(indices, weight, torch.arange(0, 24, 5), mode="sum")

    found = rewritten(bags, torch.randint(20, (24,)), weights())
    assert "_embedding_bag.default" in found
    assert_like_eager(bags, torch.randint(20, (24,)), weights())
