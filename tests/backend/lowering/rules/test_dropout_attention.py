"""Products with weights dropped, beside PyTorch with the same mask."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
import torch
from torch import Tensor

from tests.backend.lowering.rules.test_attention_dropout import SEED, kept
from tests.like_eager.rules import to_jax, to_torch
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering.rules import dropout_attention as rules


def by_eager(
    operands: list[Tensor], mask: Tensor | None, is_causal: bool, grad: Tensor, p: float
) -> list[Tensor]:
    """The output and gradients, with the weights that the seed keeps."""
    query, key, value = (x.double().requires_grad_() for x in operands)
    shared = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(shared, 1).mT / math.sqrt(query.shape[-1])
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -torch.inf)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if is_bool else scores + mask
    batch, heads, queries, keys = scores.shape
    all_heads = np.arange(batch * heads, dtype=np.uint32)[:, None, None]
    keep = kept((0, 0), (-(-queries // 128) * 128, keys), p, all_heads)[:, :queries]
    factor = torch.tensor(keep.reshape(scores.shape)).double() / (1 - p)
    out = (scores.softmax(-1).nan_to_num(0) * factor) @ value.repeat_interleave(shared, 1)
    return [out, *torch.autograd.grad(out, (query, key, value), grad.double())]


def case(dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], Tensor, Tensor]:
    """Operands, a mask of which the first query sees no key, and a gradient."""
    generator = torch.Generator().manual_seed(0)
    query, grad = torch.randn(2, 2, 4, 140, 32, generator=generator).to(dtype)
    key, value = torch.randn(2, 2, 2, 200, 32, generator=generator).to(dtype)
    mask = torch.rand(2, 1, 140, 200, generator=generator) > 0.4
    mask[..., 0, :] = False
    return [query, key, value], mask, grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added"])
def test_products(kind: str, dtype: torch.dtype) -> None:
    operands, mask, grad = case(dtype)
    given = mask if kind == "bool" else torch.where(mask, 0.5, -2.0).to(dtype)
    given = given if kind in ("bool", "added") else None
    how = (None if given is None else to_jax(given)), 0.3, kind == "causal", None
    with apart():
        arrays = [to_jax(x) for x in operands]
        out, lse, seed = rules.dropout_attention.plain(jax.numpy.asarray(SEED), *arrays, *how)
        grads = rules.dropout_attention_backward.plain(to_jax(grad), *arrays, out, lse, seed, *how)
    wanted = by_eager(operands, given, kind == "causal", grad, 0.3)
    near = {"rtol": 0.03, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for got, want in zip((out, *grads), wanted, strict=True):
        torch.testing.assert_close(to_torch(got).double(), want, **near)


def test_too_long_a_sequence_is_refused() -> None:
    x = torch.empty(1, 1, 2**17 + 1, 1)
    with pytest.raises(rules.Unsupported, match="131073 queries"):
        rules._factor(None, x, x[:, :, :1], 0.1)  # pyright: ignore
