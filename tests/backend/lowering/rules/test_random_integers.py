from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from scipy import stats

from tests.backend.lowering.rules.random_draws import assert_frequencies, draw
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering.registry import Unsupported
from xla_dynamo.backend.lowering.rules import random_integers

aten = torch.ops.aten
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def assert_even(values: torch.Tensor, low: int, high: int) -> None:
    """Sixteen equal parts of [low, high) are hit equally often, and so are the low four bits."""
    exact = [int(v) - low for v in values.flatten()]
    assert min(exact) >= 0
    assert max(exact) < high - low
    parts = np.bincount([16 * v // (high - low) for v in exact], minlength=16)
    assert stats.chisquare(parts).pvalue > 1e-4
    endings = np.bincount([v % 16 for v in exact], minlength=16)
    assert stats.chisquare(endings).pvalue > 1e-4


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 2**16),
        (-(2**20), 2**20),
        (5, 5 + 2**32),
        (0, 3 * 2**40),
        (-(2**63), 2**63 - 1),
        (-(2**62), 2**63 - 1),
        (-(2**63), 2**63),
    ],
)
def test_randint_is_even_over_any_range(low, high):
    with apart():
        key = jax.numpy.asarray([3, 4], np.uint32)
        values = jax.jit(lambda k: random_integers.integers(k, (20_000,), low, high))(key)
    assert_even(torch.from_numpy(np.array(values)), low, high)


@pytest.mark.parametrize("count", [1, 2, 7, 1000, 2**16, 2**16 + 1, 2**32, 2**32 + 1, 2**64 - 1])
def test_ranges_are_exact_products(count, monkeypatch):
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**32, (2, 500), np.uint32)
    drawn[:, 0], drawn[:, 1] = 0, 2**32 - 1
    words = lambda key, shape, stream=0: tuple(map(jax.numpy.asarray, drawn))  # noqa: E731
    monkeypatch.setattr(random_integers.random_bits, "words", words)
    with apart():
        got = [int(v) for v in random_integers.integers(None, (500,), 0, count)]
    for a, b, value in zip(*drawn.tolist(), got, strict=True):
        if count <= 2**16:
            exact = (a ^ b) * count >> 32
        elif count <= 2**32:
            exact = (a << 32 | b) * count >> 64
        else:
            exact = (a << 32 | b) * count >> 64
        assert value % 2**64 == exact


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.float32, torch.bfloat16])
def test_randint_small(dtype):
    even = np.full(6, 1 / 6)
    for values in (
        draw(aten.randint.default, 6, (50, 400), dtype=dtype),
        draw(aten.randint.low, 3, 9, (50, 400), dtype=dtype) - 3,
        draw(aten.randint_like.default, torch.empty(50, 400, dtype=dtype), 6),
        draw(aten.randint_like.low_dtype, torch.empty(50, 400, dtype=dtype), 3, 9) - 3,
        draw(aten.randint_like.Tensor, torch.empty(50, 400, dtype=dtype), torch.tensor(6)),
    ):
        assert_frequencies(values, even)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool, torch.float16, torch.bfloat16])
def test_random_fills_the_range_of_its_dtype(dtype):
    values = draw(aten.random.default, torch.empty(20_000, dtype=dtype))
    assert values.dtype == dtype
    if dtype == torch.bool:
        top = 1
    elif dtype.is_floating_point:
        top = round(2 / torch.finfo(dtype).eps)
    else:
        top = torch.iinfo(dtype).max
    assert int(values.min()) >= 0
    assert top * 0.98 < int(values.max()) <= top


def test_random_with_ends():
    x = torch.empty(50, 400)
    assert_frequencies(draw(aten.random.to, x, 6), np.full(6, 1 / 6))
    values = draw(getattr(aten.random, "from"), x.long(), -3, 3)
    assert_frequencies(values + 3, np.full(6, 1 / 6))
    unbounded = draw(getattr(aten.random, "from"), x.long(), -(2**63), None)
    assert_even(unbounded, -(2**63), 2**63)


@pytest.mark.parametrize("n", [0, 1, 5, 1000])
def test_randperm_is_a_permutation(n):
    values = draw(aten.randperm.default, n)
    assert torch.equal(values.sort()[0].long(), torch.arange(n))


def test_randperm_orders_are_equally_likely():
    keys = torch.arange(3000, dtype=torch.int64).to(torch.uint32)
    with apart():
        pairs = np.stack([keys.numpy(), keys.numpy()], 1)
        orders = jax.vmap(lambda key: random_integers.randperm(key, 3))(pairs)
    ranks = torch.from_numpy(np.array(orders, np.int64)) @ torch.tensor([9, 3, 1])
    _, counts = ranks.unique(return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


WEIGHTS = torch.tensor([0.0, 1.0, 2.0, 0.0, 4.0, 1.0, 0.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_multinomial_with_replacement(dtype):
    values = draw(aten.multinomial.default, WEIGHTS.to(dtype), 20_000, True)
    assert_frequencies(values, WEIGHTS.double().numpy() / 8)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_multinomial_of_one_sample(dtype, replacement):
    rows = WEIGHTS.to(dtype).expand(20_000, 7)
    values = draw(aten.multinomial.default, rows, 1, replacement)
    assert values.shape == (20_000, 1)
    assert_frequencies(values, WEIGHTS.double().numpy() / 8)


def test_multinomial_without_replacement():
    rows = WEIGHTS.expand(20_000, 7)
    values = draw(aten.multinomial.default, rows, 3, False)
    p = WEIGHTS.double().numpy() / 8
    assert_frequencies(values[:, 0], p)
    assert (values.sort(1)[0].diff(dim=1) > 0).all()
    second = values[values[:, 0] == 4, 1]
    rest = p * (np.arange(7) != 4)
    assert_frequencies(second, rest / rest.sum())
    everything = draw(aten.multinomial.default, torch.ones(5), 5, False)
    assert torch.equal(everything.sort()[0].long(), torch.arange(5))


def test_multinomial_among_many_never_picks_a_weight_of_zero():
    weights = torch.rand(8, 50_000) * (torch.rand(8, 50_000) < 0.1)
    values = draw(aten.multinomial.default, weights, 20_000, True)
    assert (weights.gather(1, values.long()) > 0).all()


def test_multinomial_refuses_more_samples_than_categories():
    with pytest.raises(Unsupported, match="without replacement"):
        draw(aten.multinomial.default, WEIGHTS, 8, False)
