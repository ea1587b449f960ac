"""Attention's gradient takes the forward's weights where they are small, with eager's numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import xla_dynamo
from tests.like_eager.compiled import fallbacks


def _tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, dtype=dtype, generator=generator).requires_grad_() for s in shapes]


SELF = [(2, 4, 6, 8)] * 3
MASK = torch.tensor([[True, False, True, True, False, False], [False] * 6]).repeat(3, 1)

# What is asked of scaled_dot_product_attention, and of what shapes.
CASES: dict[str, tuple[dict[str, Any], list[tuple[int, ...]]]] = {
    "self": ({}, SELF),
    "causal": ({"is_causal": True}, SELF),
    "causal, fewer keys": ({"is_causal": True}, [(2, 4, 6, 8), (2, 4, 3, 8), (2, 4, 3, 8)]),
    "scale": ({"scale": 0.3}, SELF),
    "scale that is a power of two": ({"scale": 0.25}, SELF),
    "additive mask": ({"attn_mask": torch.linspace(-2, 2, 36).double().view(6, 6)}, SELF),
    "rows without a key": ({"attn_mask": MASK}, SELF),
    "shared heads": ({"enable_gqa": True}, [(2, 4, 6, 8), (2, 2, 5, 8), (2, 2, 5, 8)]),
    "one key": ({}, [(2, 4, 6, 8), (2, 4, 1, 8), (2, 4, 1, 8)]),
}


def _run(function: Any, shapes: list[tuple[int, ...]], **kwargs: Any) -> list[Tensor]:
    given = _tensors(*shapes)
    out = function(*given, **kwargs)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), given)]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name: str) -> None:
    kwargs, shapes = CASES[name]
    attend = F.scaled_dot_product_attention
    compiled = torch.compile(attend, backend="xla", fullgraph=True, dynamic=False)
    with xla_dynamo.capture() as stages:
        actual = _run(compiled, shapes, **kwargs)
    torch.testing.assert_close(actual, _run(attend, shapes, **kwargs), rtol=1e-9, atol=1e-9)
    assert any("xla_dynamo.attention_backward" in stage.fx for stage in stages)
    assert fallbacks() == {}


def _saves_weights(keys: int, dtype: torch.dtype = torch.float32, **kwargs: Any) -> bool:
    given = _tensors((1, 2, keys, 4), (1, 2, keys, 4), (1, 2, keys, 4), dtype=dtype)
    compiled = torch.compile(F.scaled_dot_product_attention, backend="xla", dynamic=False)
    with xla_dynamo.capture() as stages:
        compiled(*given, **kwargs).sum().backward()
    return any("xla_dynamo.attention_backward" in stage.fx for stage in stages)


def test_weights_double_what_is_saved_at_most() -> None:
    assert _saves_weights(16)
    assert not _saves_weights(17)


def test_weights_of_16_bits_are_computed_again() -> None:
    assert not _saves_weights(16, torch.bfloat16)


def test_checkpointed_attention_saves_no_weights() -> None:
    given = _tensors(*SELF)

    def attend(*qkv: Tensor) -> Tensor:
        return checkpoint(F.scaled_dot_product_attention, *qkv, use_reentrant=False).sin()

    compiled = torch.compile(attend, backend="xla", fullgraph=True, dynamic=False)
    out = compiled(*given)
    saved = [x.shape for x in out.grad_fn.saved_tensors]
    assert torch.Size((2, 4, 6, 6)) not in saved
    actual = torch.autograd.grad(out.sum(), given)
    torch.testing.assert_close(actual, torch.autograd.grad(attend(*given).sum(), given))


def test_inference_has_no_weights() -> None:
    given = [x.detach() for x in _tensors(*SELF)]
    compiled = torch.compile(F.scaled_dot_product_attention, backend="xla", dynamic=False)
    with xla_dynamo.capture() as stages:
        torch.testing.assert_close(compiled(*given), F.scaled_dot_product_attention(*given))
    assert not any("xla_dynamo.attention" in stage.fx for stage in stages)


def test_what_eager_would_compute_in_place_of_the_ops() -> None:
    """What runs if a program falls back."""
    query, key, value = _tensors(*SELF)
    out, weights, inverse = torch.ops.xla_dynamo.attention(query, key, value, MASK, False, None)
    expected = F.scaled_dot_product_attention(query, key, value, MASK)
    torch.testing.assert_close(out, expected)
    grad = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    saved = [x.detach() for x in (query, key, value, out, weights, inverse)]
    actual = torch.ops.xla_dynamo.attention_backward(grad, *saved, None)
    torch.testing.assert_close(
        actual, torch.autograd.grad(expected, (query, key, value), grad), check_stride=False
    )
