"""Attention that drops weights: which it keeps, and its numbers beside eager's with the same mask."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import Tensor

from tests.like_eager.rules import to_jax, to_torch
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering.rules import _attention_dropout, random_bits
from xla_dynamo.backend.lowering.rules import dropout_attention as rules

SEED = np.uint32([0x13198A2E, 0x03707344])
HEADS = np.uint32([[[0]], [[1]], [[7]]])


def kept(first: tuple[int, int], shape: tuple[int, int], p: float = 0.1, heads: Any = HEADS) -> Any:
    with apart():
        return np.asarray(_attention_dropout.kept(tuple(SEED), heads, first, shape, p))


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0xFD36D048, 0x2D17272C)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xBA3E4725, 0xF27D669E)),
    ],
)
def test_known_answers_of_13_rounds(key: Any, counter: Any, words: Any) -> None:
    """From the test vectors of Random123, the generator's reference implementation."""
    with apart():
        drawn = random_bits.threefry(*map(jax.numpy.uint32, (*key, *counter)), rounds=13)
    assert tuple(map(int, drawn)) == words


def test_a_position_has_its_bits_in_every_block() -> None:
    whole = kept((0, 0), (512, 300))
    np.testing.assert_array_equal(kept((128, 40), (256, 200)), whole[:, 128:384, 40:240])
    one = kept((0, 0), (512, 300), heads=HEADS[2, 0, 0])
    np.testing.assert_array_equal(one, whole[2])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_weight_is_kept_with_the_same_chance(p: float) -> None:
    """In all, in each row, and in each column; neighbours know nothing of each other."""
    keep, count = kept((0, 0), (512, 512), p), 3 * 512 * 512
    sigma = math.sqrt(p * (1 - p))
    assert abs(keep.mean() - (1 - p)) < 5 * sigma / math.sqrt(count)
    for axis in (1, 2):
        assert abs(keep.mean(axis) - (1 - p)).max() < 6 * sigma / math.sqrt(512)
    off = (keep - (1 - p)) / sigma
    for pair in ((off[:, 1:], off[:, :-1]), (off[:, :, 1:], off[:, :, :-1]), (off[1:], off[:-1])):
        assert abs((pair[0] * pair[1]).mean()) < 5 / math.sqrt(pair[0].size)
    assert abs((off[:, 32:] * off[:, :-32]).mean()) < 5 / math.sqrt(count)


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
        grads = rules.dropout_attention_backward.plain(
            to_jax(grad), *arrays, out, lse, seed, *how
        )
    wanted = by_eager(operands, given, kind == "causal", grad, 0.3)
    near = {"rtol": 0.03, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for got, want in zip((out, *grads), wanted, strict=True):
        torch.testing.assert_close(to_torch(got).double(), want, **near)


def test_too_long_a_sequence_is_refused() -> None:
    x = torch.empty(1, 1, 2**17 + 1, 1)
    with pytest.raises(rules.Unsupported, match="131073 queries"):
        rules._factor(None, x, x[:, :, :1], 0.1)  # pyright: ignore


def test_the_op_in_eager() -> None:
    """With values that give the weights back, what is dropped can be read."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 4, 6, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.eye(6, 8, dtype=torch.float64).expand(1, 4, 6, 8).clone().requires_grad_()
    out = torch.ops.xla_dynamo.dropout_attention(q, k, v, None, 0.4, False, None)[0]
    keep = (out != 0)[..., :6].double() / 0.6
    want = ((q @ k.mT / math.sqrt(8)).softmax(-1) * keep) @ v
    torch.testing.assert_close(out, want)
    grad = torch.randn(out.shape, dtype=torch.float64)
    got, wanted = (torch.autograd.grad(x, (q, k, v), grad) for x in (out, want))
    torch.testing.assert_close(got, wanted)
