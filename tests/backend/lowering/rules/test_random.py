from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from scipy import stats

from tests.backend.lowering.rules.random_draws import KEY, OTHER_KEY, assert_follows, draw
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering.registry import Unsupported
from xla_dynamo.backend.lowering.rules import random, random_bits

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZE = (100, 200)


@pytest.mark.parametrize("shape", [(), (7,), (3, 0), (2, 5, 4)])
@pytest.mark.parametrize(("bits", "dtype"), [("bits", np.uint32), ("bits64", np.uint64)])
def test_words_are_those_of_jax_random(bits, dtype, shape):
    with apart():
        key = jax.numpy.asarray(KEY.numpy())
        typed = jax.random.wrap_key_data(key, impl="threefry2x32")
        ours = getattr(random_bits, bits)(key, shape)
        np.testing.assert_array_equal(ours, jax.random.bits(typed, shape, dtype))


def test_known_answer_of_threefry():
    # From the test vectors of Random123, the generator's reference implementation.
    key, counter = np.uint32([0x13198A2E, 0x03707344]), np.uint32([0x243F6A88, 0x85A308D3])
    x0, x1 = random_bits.threefry(*(jax.numpy.uint32(v) for v in (*key, *counter)))
    assert (int(x0), int(x1)) == (0xC4923A9C, 0x483DF7A0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rand_is_uniform_and_below_one(dtype):
    sample = draw(aten.rand.default, (400, 500), dtype=dtype)
    assert sample.dtype == dtype
    assert sample.min() >= 0
    assert sample.max() < 1
    grid = 2.0 ** -(1 - int(np.log2(torch.finfo(dtype).eps)))
    if grid < 1e-3:
        assert_follows(sample[:40], stats.uniform.cdf)
    else:
        cells = torch.bincount((sample / grid).long().flatten(), minlength=round(1 / grid))
        assert stats.chisquare(cells.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("dtype", FLOATS)
def test_randn_is_normal(dtype):
    sample = draw(aten.randn.default, SIZE, dtype=dtype)
    assert sample.dtype == dtype
    if dtype == torch.bfloat16:  # too coarse for Kolmogorov-Smirnov
        assert abs(sample.float().mean()) < 0.03
        assert abs(sample.float().std() - 1) < 0.03
    else:
        assert_follows(sample, stats.norm.cdf)


def test_a_million_normals_have_the_right_moments_and_tails():
    sample = draw(aten.randn.default, (1_000_000,), dtype=torch.float32).double()
    assert torch.isfinite(sample).all()
    assert stats.skew(sample) == pytest.approx(0, abs=0.01)
    assert stats.kurtosis(sample) == pytest.approx(0, abs=0.02)
    assert (sample.abs() > 4).sum() == pytest.approx(63, abs=32)


def test_extreme_bits_give_finite_values(monkeypatch):
    for extreme in (0, 2**31 - 1, 2**31, 2**32 - 1):
        word = jax.numpy.full((1,), extreme, jax.numpy.uint32)
        monkeypatch.setattr(random_bits, "words", lambda *_, w=word: (w, w))
        monkeypatch.setattr(random_bits, "bits", lambda *_, w=word: w)
        with apart():
            for dtype in (np.float32, np.float64):
                dtype = np.dtype(dtype)
                assert 0 <= random_bits.uniform(None, (1,), dtype)[0] < 1
                assert 0 < abs(random_bits.normal(None, (1,), dtype)[0]) < 9
                assert 0 < random_bits.exponential(None, (1,), dtype)[0] < 50
            half = random_bits.uniform(None, (1,), np.dtype(np.float16))
            assert 0 <= half[0] < 1


@pytest.mark.parametrize("op", [aten.rand.default, aten.randn.default])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_parts_are_independent(op, dtype):
    sample = draw(op, SIZE, dtype=dtype)
    assert sample.dtype == dtype
    law = stats.uniform.cdf if op is aten.rand.default else stats.norm(0, 0.5**0.5).cdf
    for part in (sample.real, sample.imag):
        assert_follows(part, law)
    assert abs(np.corrcoef(sample.real.flatten(), sample.imag.flatten())[0, 1]) < 0.03


@pytest.mark.parametrize("op", [aten.rand_like.default, aten.randn_like.default])
def test_like_takes_shape_and_dtype_of_its_argument(op):
    like = torch.empty(3, 4, dtype=torch.float64)
    assert draw(op, like).dtype == torch.float64
    assert draw(op, like, dtype=torch.float16, memory_format=torch.preserve_format).shape == (3, 4)
    assert draw(op, torch.empty(())).shape == ()


@pytest.mark.parametrize(
    ("op", "args", "law"),
    [
        (aten.uniform.default, (), stats.uniform),
        (aten.uniform.default, (-3.0, 5.0), stats.uniform(-3, 8)),
        (aten.normal_functional.default, (2.0, 3.0), stats.norm(2, 3)),
        (aten.exponential.default, (2.5,), stats.expon(scale=1 / 2.5)),
        (aten.cauchy.default, (1.0, 2.0), stats.cauchy(1, 2)),
        (aten.log_normal.default, (0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_in_place_fillers(op, args, law, dtype):
    sample = draw(op, torch.empty(SIZE, dtype=dtype), *args)
    assert_follows(sample, law.cdf)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_stays_below_its_end(dtype):
    sample = draw(aten.uniform.default, torch.empty(300, 1000, dtype=dtype), 1.0, 1.5)
    assert sample.dtype == dtype
    assert 1 <= sample.min() < 1.01
    assert sample.max() < 1.5


def test_exponential_is_never_zero():
    sample = draw(aten.exponential.default, torch.empty(1_000_000))
    assert sample.min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32])
@pytest.mark.parametrize("p", [0.9, 0.3, 0.01])
def test_geometric(dtype, p):
    sample = draw(aten.geometric.default, torch.empty(SIZE, dtype=dtype), p).double()
    assert sample.min() >= 1
    expected = 20_000 * p * (1 - p) ** np.arange(3)
    counts = [(sample == k).sum().item() for k in (1, 2, 3)]
    assert counts == pytest.approx(expected, abs=5 * np.sqrt(expected.max()))
    assert sample.mean().item() == pytest.approx(1 / p, rel=0.04)


def test_geometric_of_certain_success():
    assert (draw(aten.geometric.default, torch.empty(9), 1.0) == 1).all()


def test_normal_overloads():
    mean, std = torch.linspace(-5, 5, 200), torch.linspace(0.5, 4, 100)[:, None]
    z = draw(aten.normal.Tensor_Tensor, mean, std)
    assert_follows((z - mean) / std, stats.norm.cdf)
    assert_follows((draw(aten.normal.Tensor_float, mean, 2.0) - mean) / 2, stats.norm.cdf)
    assert_follows(draw(aten.normal.float_Tensor, 1.0, std) / std - 1 / std, stats.norm.cdf)
    assert_follows(draw(aten.normal.float_float, 1.0, 2.0, SIZE), stats.norm(1, 2).cdf)
    assert draw(aten.normal.Tensor_float, mean.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("op", [aten.rand.default, aten.randn.default])
def test_keys_decide_the_numbers(op):
    first, again = draw(op, SIZE), draw(op, SIZE)
    other = draw(op, SIZE, key=OTHER_KEY)
    assert torch.equal(first, again)
    assert abs(np.corrcoef(first.flatten(), other.flatten())[0, 1]) < 0.03
    lagged = np.corrcoef(first.flatten()[1:], first.flatten()[:-1])[0, 1]
    assert abs(lagged) < 0.03


def test_streams_of_one_key_are_independent():
    key = jax.numpy.asarray(KEY.numpy())
    first, second = (random_bits.normal(key, SIZE, np.dtype(np.float32), s) for s in (0, 1))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.03


def test_a_users_generator_is_refused():
    with pytest.raises(Unsupported, match=r"torch\.Generator"):
        draw(aten.rand.generator, SIZE, generator=torch.Generator())


def test_draws_cost_no_memory_but_the_result():
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    like = jax.ShapeDtypeStruct((1000, 1000), np.float32)
    compiled = jax.jit(random.normal_functional).lower(key, like).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1000


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_the_mean_of_complex_normals_is_that_of_either_part(dtype):
    x = torch.empty(4000, dtype=dtype)
    drawn = torch.compile(lambda x: x.normal_(-2, 0.5), backend="xla")(x)
    for part in (drawn.real, drawn.imag):
        assert abs(part.mean() + 2) < 0.05
        assert abs(part.std() - 0.5 / 2**0.5) < 0.03
