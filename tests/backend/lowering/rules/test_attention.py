"""Fused attention and its gradient against eager's CPU kernel."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_rounding, run
from xla_dynamo.backend.lowering.registry import Unsupported
from xla_dynamo.backend.lowering.rules import attention  # noqa: F401

forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _mask(*shape):
    mask = torch.randn(shape)
    return mask.masked_fill(torch.rand(shape) < 0.3, -float("inf"))


def _check(query_shape, key_shape, dtype=torch.float32, is_causal=False, **kwargs):
    query, key, value = (torch.randn(s).to(dtype) for s in (query_shape, key_shape, key_shape))
    compare = check_rounding if dtype in (torch.bfloat16, torch.float16) else check
    compare(forward, query, key, value, 0.0, is_causal, **kwargs)
    out, logsumexp = forward(query, key, value, 0.0, is_causal, **kwargs)
    args = (torch.randn_like(out), query, key, value, out, logsumexp, 0.0, is_causal)
    compare(backward, *args, **kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_causal", [False, True])
def test_dtypes(dtype, is_causal):
    _check((2, 3, 5, 8), (2, 3, 7, 8), dtype, is_causal)


@pytest.mark.parametrize(("queries", "keys"), [(7, 4), (1, 6), (6, 6), (40, 33)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths(queries, keys, is_causal):
    _check((1, 2, queries, 4), (1, 2, keys, 4), is_causal=is_causal)


@pytest.mark.parametrize("scale", [None, -0.25, 0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_scales(dtype, scale):
    """Powers of two, which scale the queries, and others; more keys than features."""
    _check((1, 2, 5, 16), (1, 2, 40, 16), dtype, scale=scale)


def test_large_scores():
    _check((1, 2, 6, 8), (1, 2, 6, 8), torch.float64, scale=400.0)


@pytest.mark.parametrize("shape", [(5, 7), (2, 1, 5, 7), (2, 3, 5, 7), (1, 3, 1, 7)])
def test_masks(shape):
    _check((2, 3, 5, 8), (2, 3, 7, 8), attn_mask=_mask(*shape), scale=0.7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_with_nothing_to_attend_to(dtype):
    mask = _mask(5, 7)
    mask[2] = -float("inf")
    _check((2, 3, 5, 8), (2, 3, 7, 8), dtype, attn_mask=mask)


@pytest.mark.parametrize("masked", [True, False])
def test_grouped_heads(masked):
    kwargs = {"attn_mask": _mask(2, 6, 5, 7)} if masked else {"is_causal": True}
    query, key, value = (torch.randn(2, h, n, 8) for h, n in ((6, 5), (2, 7), (2, 7)))
    shared = [torch.repeat_interleave(t, 3, 1).requires_grad_() for t in (key, value)]
    query.requires_grad_()
    causal = kwargs.pop("is_causal", False)
    expected, logsumexp = forward(query, *shared, 0.0, causal, **kwargs)
    actual = run(forward, query, key, value, 0.0, causal, **kwargs)
    torch.testing.assert_close(actual, (expected.detach(), logsumexp))
    grad = torch.randn_like(expected)
    grads = torch.autograd.grad(expected, (query, *shared), grad)
    args = (grad, query, key, value, *actual, 0.0, causal)
    by_head = [grads[0], *(g.unflatten(1, (2, 3)).sum(2) for g in grads[1:])]
    torch.testing.assert_close(run(backward, *args, **kwargs), tuple(by_head))


def test_bool_mask():
    query, key, value = (torch.randn(1, 2, 5, 4) for _ in range(3))
    keep = torch.rand(5, 5) < 0.5
    bias = torch.zeros(5, 5).masked_fill(~keep, -float("inf"))
    actual = run(forward, query, key, value, attn_mask=keep)
    torch.testing.assert_close(actual, forward(query, key, value, attn_mask=bias))


def test_dropout():
    tensors = [torch.randn(1, 1, 2, 2) for _ in range(3)]
    with pytest.raises(Unsupported, match="dropout"):
        run(forward, *tensors, 0.1)
