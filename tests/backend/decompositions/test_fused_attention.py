"""Attention as one op: where PyTorch has one on a CPU, and with its numbers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from xla_dynamo.backend.decompositions.fused_attention import fused_attention, is_fused

Q = torch.randn(2, 4, 8, 16)


def test_where_it_is_one_op() -> None:
    assert is_fused(Q, Q, Q, None, 0.0, False)
    assert is_fused(Q, Q, Q, torch.ones(8, 8).bool(), 0.0, False)
    assert is_fused(Q, Q[:, :2], Q[:, :2], None, 0.0, True)
    assert not is_fused(Q, Q[:, :2], Q[:, :2], None, 0.0, False)
    assert not is_fused(Q, Q, Q, None, 0.1, False)
    assert not is_fused(Q[0], Q[0], Q[0], None, 0.0, False)
    assert not is_fused(Q, Q, Q[..., :8], None, 0.0, False)
    assert not is_fused(Q, Q, Q, torch.ones(8, 8, requires_grad=True), 0.0, False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert not is_fused(Q, Q, Q, None, 0.0, False)


@pytest.mark.parametrize("kind", ["plain", "bool mask", "float mask"])
def test_numbers(kind: str) -> None:
    mask = {"plain": None, "bool mask": torch.ones(8, 8).tril().bool()}.get(kind, torch.eye(8))
    expected = F.scaled_dot_product_attention(Q, Q, Q, attn_mask=mask, scale=0.5)
    torch.testing.assert_close(fused_attention(Q, Q, Q, mask, False, 0.5), expected)
