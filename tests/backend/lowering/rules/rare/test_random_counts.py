from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from tests.backend.lowering.rules.random_draws import assert_follows, assert_frequencies, draw
from tests.like_eager.rules import run

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16]


@pytest.mark.parametrize(
    ("dtype", "rate"),
    [*((dtype, 4.0) for dtype in FLOATS), *((FLOATS[0], r) for r in (0, 0.5, 30))],
)
def test_poisson(dtype, rate):
    values = draw(aten.poisson.default, torch.full((100, 200), rate, dtype=dtype))
    assert values.dtype == dtype
    p = stats.poisson(rate).pmf(np.arange(100))
    assert_frequencies(values.clamp(max=99), p / p.sum())


@pytest.mark.parametrize(
    ("dtype", "n", "p"),
    [
        *((dtype, 9, 0.3) for dtype in FLOATS),
        *((FLOATS[0], n, p) for n, p in ((0, 0.5), (5, 0.0), (5, 1.0), (60, 0.8))),
    ],
)
def test_binomial(dtype, n, p):
    counts = torch.full((100, 200), n, dtype=dtype)
    values = draw(aten.binomial.default, counts, torch.full((100, 200), p, dtype=dtype))
    exact = torch.tensor(p, dtype=dtype).item()
    assert_frequencies(values, stats.binom(n, exact).pmf(np.arange(n + 1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 7.5])
def test_standard_gamma(dtype, alpha):
    values = draw(aten._standard_gamma.default, torch.full((50, 200), alpha, dtype=dtype))
    assert_follows(values, stats.gamma(alpha).cdf)
    assert values.min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dirichlet(dtype):
    alpha = torch.tensor([0.5, 1.0, 2.5], dtype=dtype)
    values = draw(aten._sample_dirichlet.default, alpha.expand(10_000, 3))
    torch.testing.assert_close(values.sum(-1), torch.ones(10_000, dtype=dtype))
    for i, a in enumerate(alpha.tolist()):
        assert_follows(values[:, i], stats.beta(a, 4.0 - a).cdf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_standard_gamma_grad(dtype):
    # Eager takes an asymptotic series for large shapes, right to three digits: the quantile's own
    # derivative is the reference.
    shape = torch.tensor([0.2, 0.9, 1.5, 4.0, 20.0], dtype=dtype)[:, None].expand(5, 6).contiguous()
    sample = shape * torch.linspace(0.3, 2.5, 6, dtype=dtype)
    actual = run(aten._standard_gamma_grad.default, shape, sample)
    a, x, h = shape.double().numpy(), sample.double().numpy(), 1e-5
    level = special.gammainc(a, x)
    slope = (special.gammaincinv(a + h, level) - special.gammaincinv(a - h, level)) / (2 * h)
    np.testing.assert_allclose(actual.numpy(), slope, rtol=1e-4)
    torch.testing.assert_close(actual, torch._standard_gamma_grad(shape, sample), rtol=5e-4, atol=0)
