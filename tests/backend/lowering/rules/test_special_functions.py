"""Special functions, against eager."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from tests.like_eager.rules import check, run, to_torch
from xla_dynamo.backend.lowering.rules import special_functions

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
UNARY = sorted(special_functions._UNARY, key=str)
FLOAT_ONLY = {torch.bfloat16, torch.float16}
# Eager has no 16-bit kernel for these, or rounds in between.
NO_16_BITS = {
    aten.special_log_ndtr.default,
    aten.special_ndtr.default,
    aten.special_erfcx.default,
    aten.special_modified_bessel_i0.default,
    aten.special_modified_bessel_i1.default,
    aten.special_ndtri.default,
    aten.special_spherical_bessel_j0.default,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("op", UNARY, ids=str)
def test_unary(op: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([-2.5, -1.0, -0.3, -0.0, 0.0, 0.2, 0.5, 0.9, 1.0, 2.0, 3.7, 9.0])
    if not (dtype in FLOAT_ONLY and op in NO_16_BITS):
        check(op, x.to(dtype))


@pytest.mark.parametrize("op", UNARY, ids=str)
def test_not_a_number(op: Any) -> None:
    check(op, torch.tensor([NAN, 1.0]))


@pytest.mark.parametrize("op", [aten.erf.default, aten.erfc.default, aten.special_log_ndtr.default])
def test_tails(op: Any) -> None:
    check(op, torch.tensor([-INF, -30.0, -8.0, 8.0, 30.0, INF], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_erfcx_where_erfc_vanishes(dtype: torch.dtype) -> None:
    check(aten.special_erfcx.default, torch.linspace(-9.5, 30, 2001, dtype=dtype))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_polygamma(n: int) -> None:
    x = torch.tensor([-3.7, -1.2, -0.4, 0.1, 0.9, 2.0, 7.5, 40.0], dtype=torch.float64)
    check(aten.polygamma.default, n, torch.tensor([float("inf"), float("nan")]))
    check(aten.polygamma.default, n, x)
    check(aten.polygamma.default, n, torch.arange(1, 5))


def test_zeta_far_below_zero() -> None:
    """Eager adds up all terms from there on."""
    q = torch.tensor([-999.5, -1000.3, -1003.0, -12000.25, -1e5 + 0.3], dtype=torch.float64)
    for order in (2.0, 3.0, 7.0):
        check(aten.special_zeta.default, torch.full_like(q, order), q)
        check(aten.polygamma.default, int(order), q)


def test_zeta() -> None:
    s = torch.tensor([0.5, 1.0, 2.0, 3.5, 12.0, 2.0, 2.5, 3.0], dtype=torch.float64)
    q = torch.tensor([1.0, 2.0, 0.3, 5.0, 1.0, -3.0, -1.5, -1.5], dtype=torch.float64)
    check(aten.special_zeta.default, s, q)
    check(aten.special_zeta.default, s.long(), q.long())
    check(aten.special_zeta.self_scalar, 2, q)
    inf, nan = float("inf"), float("nan")
    s, q = torch.cartesian_prod(*[torch.tensor([1.0, 2.5, 0.5, 0.0, -1.0, inf, -inf, nan])] * 2).T
    check(aten.special_zeta.default, s, q)


def test_incomplete_gamma() -> None:
    a = torch.tensor([0.5, 1.0, 3.0, 20.0, 0.0, 2.0, INF, INF, 1.0])
    x = torch.tensor([0.1, 2.0, 3.0, 15.0, 1.0, 0.0, INF, 1.0, INF])
    check(aten.igamma.default, a, x)
    check(aten.igammac.default, a, x)
    check(aten.igamma.default, a[:, None].double(), x.double())


def test_incomplete_gamma_of_large_shapes() -> None:
    """Where a series has too many terms: of a = 1e30 it would not end."""
    a = torch.tensor([2e4, 1e5, 1e6, 1e9, 1e12], dtype=torch.float64)[:, None]
    x = a + a.sqrt() * torch.tensor([-4, -1.5, -0.1, 0, 0.2, 1, 3.5], dtype=torch.float64)
    for op in (aten.igamma.default, aten.igammac.default):
        check(op, a.expand_as(x), x)
        check(op, a, a * torch.tensor([0.1, 0.5, 0.9, 1.1, 2, 1e5], dtype=torch.float64))
        check(op, torch.tensor([1e30, 1e30, 1e30]), torch.tensor([1e30, 1e29, 1e31]))


def test_multivariate_gamma() -> None:
    check(aten.mvlgamma.default, torch.rand(4, 3) + 3, 4)
    check(aten.mvlgamma.default, torch.arange(3, 8), 2)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 4e-6), (torch.float64, 1e-12)])
def test_lgamma_next_to_its_zeros(dtype: torch.dtype, rtol: float) -> None:
    """Its digits there, not only those of the terms that cancel; 0 at 1 and 2."""
    offsets = 2.0 ** -torch.arange(1, 22)
    x = torch.cat([one + sign * offsets for one in (1, 2) for sign in (1, -1)]).to(dtype)
    close(run(aten.lgamma.default, x), torch.lgamma(x), atol=0, rtol=rtol)
    for ones in (torch.tensor([1, 2], dtype=dtype), torch.tensor([1, 2])):
        assert not to_torch(run(aten.lgamma.default, ones)).any()


def test_zeta_of_what_underflows() -> None:
    s = torch.tensor([10.0, 50, 100, 127, 200, 1000])[:, None]
    q = torch.tensor([1.0, 2, 3, 8, 1e10])
    close(run(aten.special_zeta.default, s, q), torch.special.zeta(s, q), atol=1e-37, rtol=2e-6)
    check(aten.special_zeta.default, s.double(), q.double())


def close(array: jax.Array, expected: torch.Tensor, atol: float, rtol: float) -> None:
    torch.testing.assert_close(to_torch(array), expected, atol=atol, rtol=rtol)
