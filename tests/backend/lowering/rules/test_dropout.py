from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from scipy import stats

from tests.backend.lowering.rules.random_draws import KEY, OTHER_KEY, assert_follows, draw
from xla_dynamo.backend.lowering.registry import Unsupported
from xla_dynamo.backend.lowering.rules import dropout

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def assert_share(mask: torch.Tensor, p: float) -> None:
    hits, trials = int(mask.bool().sum()), mask.numel()
    assert stats.binomtest(hits, trials, p).pvalue > 1e-4


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("train", [True, None])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_scale_and_mask_agree(dtype, train, p):
    x = torch.randn(100, 200).to(dtype)
    out, mask = draw(aten.native_dropout.default, x, p, train)
    assert (out.dtype, mask.dtype) == (dtype, torch.bool)
    torch.testing.assert_close(out, x * mask * (1 / (1 - p)))
    assert_share(mask, 1 - p)


@pytest.mark.parametrize(("p", "train"), [(0.0, True), (1.0, True), (0.5, False), (1.0, None)])
def test_dropout_without_chance_is_eager(p, train):
    x = torch.tensor([1.0, -2.0, float("nan"), float("inf"), 0.0])
    expected, actual = (
        aten.native_dropout(x, p, train),
        draw(aten.native_dropout.default, x, p, train),
    )
    for want, got in zip(expected, actual, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_dropout_keeps_dropped_nans():
    x = torch.full((64,), float("nan"))
    out, _ = draw(aten.native_dropout.default, x, 0.5, True)
    assert out.isnan().all()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_dropout_of_empty_and_scalar(shape):
    out, mask = draw(aten.native_dropout.default, torch.ones(shape), 0.5, True)
    assert out.shape == mask.shape == shape


def test_dropout_masks_of_two_keys_are_independent():
    x = torch.ones(100, 200)
    masks = [
        draw(aten.native_dropout.default, x, 0.5, True, key=k)[1] for k in (KEY, OTHER_KEY, KEY)
    ]
    assert torch.equal(masks[0], masks[2])
    assert_share(masks[0] ^ masks[1], 0.5)


def test_dropout_needs_no_memory_but_its_results():
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    x = jax.ShapeDtypeStruct((32, 64, 12, 12), np.float32)
    compiled = jax.jit(lambda k, x: dropout.native_dropout(k, x, 0.1, True)).lower(key, x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1000


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool])
@pytest.mark.parametrize("p", [0.0, 0.25, 0.7, 1.0])
def test_bernoulli_p(dtype, p):
    out = draw(aten.bernoulli.p, torch.empty(100, 200, dtype=dtype), p)
    assert out.dtype == dtype
    assert_share(out == 1, p)
    assert ((out == 0) | (out == 1)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [0.0, 2**-6, 0.25, 0.75, 1.0])
def test_bernoulli_of_a_tensor(dtype, p):
    probabilities = torch.full((100, 200), p, dtype=dtype)
    assert_share(draw(aten.bernoulli.default, probabilities), p)
    into = torch.empty(100, 200, dtype=torch.int32)
    assert_share(draw(aten.bernoulli.Tensor, into, probabilities[0]), p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bernoulli_takes_small_probabilities_seriously(dtype):
    rare = draw(aten.bernoulli.default, torch.full((2000, 1000), 2e-5, dtype=dtype))
    assert_share(rare, 2e-5)
    assert draw(aten.bernoulli.default, torch.full((100, 100), 1e-12, dtype=dtype)).sum() == 0


@pytest.mark.parametrize("dtype", FLOATS)
def test_rrelu(dtype):
    x = torch.randn(100, 200).to(dtype)
    x[0, 0], x[0, 1] = 0, float("nan")
    out, noise = draw(
        aten.rrelu_with_noise_functional.default, x, torch.empty_like(x), 0.25, 0.5, True
    )
    torch.testing.assert_close(out, torch.where(x <= 0, x * noise, x), equal_nan=True)
    assert (noise[~(x <= 0)] == 1).all()
    slopes = noise[x <= 0]
    assert 0.25 <= slopes.min() <= slopes.max() <= 0.5
    if dtype in (torch.float32, torch.float64):
        assert_follows(slopes, stats.uniform(0.25, 0.25).cdf)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rrelu_in_evaluation_is_eager(dtype):
    x, noise = torch.randn(5, 6).to(dtype), torch.randn(5, 6).to(dtype)
    op = aten.rrelu_with_noise_functional.default
    for want, got in zip(op(x, noise, 0.1, 0.4), draw(op, x, noise, 0.1, 0.4), strict=True):
        torch.testing.assert_close(got, want)


def test_a_users_generator_is_refused():
    with pytest.raises(Unsupported, match=r"torch\.Generator"):
        draw(aten.bernoulli.p, torch.ones(3), 0.5, generator=torch.Generator())
