"""flex_attention becomes its math: no fallback, and eager's numbers and memory layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import xla_dynamo

DOCUMENTS = torch.tensor([0] * 7 + [1] * 14 + [2] * 11)
BIAS = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))


def alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score + (k - q) * torch.exp2(-2.0 * (h + 1))


def soft_cap(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.tanh(score / 2) * 2


def biased(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score * BIAS[h, k]


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def document(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return DOCUMENTS[q] == DOCUMENTS[k]


def empty_rows(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return k + 8 < q


def inputs(dtype: torch.dtype = torch.float32, shared: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query = torch.randn(2, 32, 4, 8, dtype=dtype).transpose(1, 2)  # as a module makes it
    key, value = (torch.randn(2, shared, 32, 8, dtype=dtype) for _ in range(2))
    return query, key, value


def assert_as_eager(function: Callable[..., Any], *args: Any, **tolerances: float) -> None:
    xla_dynamo.reset_metrics()
    expected = torch.compile(function, backend="eager")(*args)
    actual = torch.compile(function, backend="xla", options={"fallback": "error"})(*args)
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerances)
    assert [t.stride() for t in _tensors(actual)] == [t.stride() for t in _tensors(expected)]
    assert len(xla_dynamo.compiles()) == 1


def _tensors(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def _name(function: Callable[..., Tensor] | None) -> str:
    return getattr(function, "__name__", "none")


@pytest.mark.parametrize("mask", [None, causal, document, empty_rows], ids=_name)
@pytest.mark.parametrize("score", [None, alibi, soft_cap, biased], ids=_name)
def test_scores_and_masks(score: Any, mask: Any) -> None:
    blocks = None if mask is None else create_block_mask(mask, 2, 4, 32, 32, "cpu", BLOCK_SIZE=16)
    assert_as_eager(
        lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=blocks), *inputs()
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(dtype: torch.dtype) -> None:
    assert_as_eager(lambda q, k, v: flex_attention(q, k, v, score_mod=alibi), *inputs(dtype))


def test_grouped_queries_and_a_scale() -> None:
    assert_as_eager(
        lambda q, k, v: flex_attention(q, k, v, scale=0.3, enable_gqa=True), *inputs(shared=2)
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_sums_of_rows() -> None:
    blocks = create_block_mask(empty_rows, None, None, 32, 32, "cpu")
    assert_as_eager(
        lambda q, k, v: flex_attention(q, k, v, block_mask=blocks, return_lse=True), *inputs()
    )


def test_other_lengths_compile_once_each() -> None:
    compiled = torch.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=alibi),
        backend="xla",
        options={"fallback": "error"},
    )
    for length in (32, 16, 24):
        query, key, value = (x[:, :, :length] for x in inputs())
        expected = flex_attention(query, key, value, score_mod=alibi)
        torch.testing.assert_close(compiled(query, key, value), expected)
