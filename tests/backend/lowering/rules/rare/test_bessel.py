"""Bessel and Airy functions, against eager."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
import torch

from tests.like_eager.rules import check, check_samples
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering.rules.rare import bessel

aten = torch.ops.aten
OPS = sorted(bessel.FUNCTIONS, key=str)
TRUTH = {
    aten.special_bessel_j0.default: scipy.special.j0,
    aten.special_bessel_j1.default: scipy.special.j1,
    aten.special_bessel_y0.default: scipy.special.y0,
    aten.special_bessel_y1.default: scipy.special.y1,
    aten.special_airy_ai.default: lambda x: scipy.special.airy(x)[0],
    aten.special_modified_bessel_k0.default: scipy.special.k0,
    aten.special_modified_bessel_k1.default: scipy.special.k1,
    aten.special_scaled_modified_bessel_k0.default: scipy.special.k0e,
    aten.special_scaled_modified_bessel_k1.default: scipy.special.k1e,
}
NAN, INF = float("nan"), float("inf")


def _name(op: Any) -> str:
    return op._schema.name.removeprefix("aten::").replace("special_", "special.", 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("op", OPS, ids=str)
def test_samples(op: Any, dtype: torch.dtype) -> None:
    assert check_samples(_name(op), dtype, limit=6)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_a_grid_across_all_ranges(op: Any) -> None:
    check(op, torch.linspace(-30, 30, 2001))
    check(op, torch.logspace(-6, 2, 400))
    check(op, torch.tensor([NAN, 0.0, -0.0, INF, -INF]))


@pytest.mark.parametrize("op", OPS, ids=str)
def test_float64_is_exact_also_where_eager_is_not(op: Any) -> None:
    x = np.concatenate([-np.logspace(-6, 2, 500), np.logspace(-300, 5, 2000)])
    with apart():
        got = np.asarray(jax.jit(bessel.FUNCTIONS[op])(x))
    np.testing.assert_allclose(got, TRUTH[op](x), rtol=2e-11, atol=2e-13)
