"""Element-wise functions of one tensor and complex numbers, against eager."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_samples, run
from xla_dynamo.backend.lowering.rules import comparison, pointwise

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
SPECIAL = [-INF, -2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0, 20.0, INF, NAN]
MATHS = sorted(pointwise._TO_FLOAT, key=str)
ROUNDINGS = [*pointwise._ROUNDINGS, aten.frac.default]
SIGNS = [aten.abs.default, aten.sgn.default, aten.sign.default, aten.square.default]
TESTS = [*comparison._TESTS, aten.signbit.default, aten.logical_not.default]
COMPLEX = [
    "abs",
    "angle",
    "sgn",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "tanh",
    "asin",
]
COMPLEX += ["acos", "atan", "neg", "square", "reciprocal", "sigmoid", "log10", "expm1"]
COMPLEX += ["conj", "conj_physical", "view_as_real"]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", [*MATHS, *ROUNDINGS, *SIGNS, *TESTS, aten.angle.default], ids=str)
def test_non_finite(op: Any, dtype: torch.dtype) -> None:
    check(op, torch.tensor(SPECIAL, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("op", [*MATHS, *ROUNDINGS[:-1], *SIGNS, *TESTS, aten.neg.default], ids=str)
def test_integers(op: Any, dtype: torch.dtype) -> None:
    check(op, torch.tensor([0, 1, 2, 5, -3 if dtype.is_signed else 3], dtype=dtype))


@pytest.mark.parametrize("op", [*MATHS, aten.sgn.default, aten.logical_not.default], ids=str)
def test_bools(op: Any) -> None:
    check(op, torch.tensor([True, False]))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex(name: str, dtype: torch.dtype) -> None:
    op = getattr(aten, "_conj" if name == "conj" else name).default
    x = torch.tensor([1 + 2j, -0.3 + 0.1j, -2 - 0.5j, 0.7j, 1.5], dtype=dtype)
    check(op, x)


def test_complex_parts() -> None:
    real, imag = torch.randn(3, 2), torch.randn(3, 2)
    check(aten.complex.default, real, imag)
    check(aten.polar.default, real, imag)
    check(aten.view_as_complex.default, real)
    check(aten.real.default, torch.complex(real, imag))
    check(aten.imag.default, torch.complex(real, imag))
    check(aten.sgn.default, torch.zeros(2, dtype=torch.complex64))


@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_decimals(decimals: int, dtype: torch.dtype) -> None:
    check(aten.round.decimals, torch.randn(50, dtype=dtype) * 100, decimals=decimals)


def test_nan_to_num() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor(SPECIAL, dtype=dtype)
        check(aten.nan_to_num.default, x)
        check(aten.nan_to_num.default, x, 1.5, 2.5, -3.5)
        assert torch.signbit(run(aten.nan_to_num.default, x * torch.nan, -0.0)).all()
    check(aten.nan_to_num.default, torch.complex(x.float(), x.float()))
    check(aten.nan_to_num.default, torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    "name",
    ["sqrt", "rsqrt", "log", "log1p", "asin", "acos", "atan", "asinh", "acosh", "atanh", "angle"],
)
def test_sides_of_branch_cuts(name: str, dtype: torch.dtype) -> None:
    """The sign of a zero says which side of a cut is meant."""
    parts = torch.tensor([0.0, -0.0, 0.5, -0.5, 2.5, -2.5], dtype=torch.float64)
    real, imag = torch.cartesian_prod(parts, parts).T
    check(getattr(aten, name).default, torch.complex(real, imag).to(dtype))
    if name == "sqrt":
        check(aten.pow.Tensor_Scalar, torch.complex(real, imag).to(dtype), 0.5)


def test_logit() -> None:
    x = torch.tensor([-0.1, 0.0, 1e-7, 0.3, 1.0, 1.2])
    check(aten.logit.default, x)
    check(aten.logit.default, x, 1e-6)


def test_frexp() -> None:
    check(aten.frexp.Tensor, torch.tensor([0.0, -0.0, 1.0, -3.7, 1e-30, 1e30, 0.5]))
    check(aten.frexp.Tensor, torch.randn(9).half())


@pytest.mark.parametrize("name", ["sinc", "logit", "frac", "nan_to_num", "ldexp", "polar"])
def test_samples(name: str) -> None:
    assert check_samples(name, torch.float32, limit=5)


@pytest.mark.parametrize("op", [aten.exp2.default, aten.sinh.default, aten.cosh.default], ids=str)
def test_exponentials_of_large_numbers(op: Any) -> None:
    x = torch.linspace(-88, 88, 10001)
    # To a last digit or two: default tolerances would pass XLA's own for small x alone.
    torch.testing.assert_close(run(op, x).double(), op(x.double()), rtol=5e-7, atol=1e-9)
    check(op, torch.tensor([0.0, -0.0, 1e-30, 127.9, 128.0, -127.0, -160.0, 1e30, -INF, INF, NAN]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whole_powers_are_exact(dtype: torch.dtype) -> None:
    """floor(log2(8)) is 3, and exp2(3) is no 7.999."""
    limits = torch.finfo(dtype)
    least = int(math.log2(limits.tiny))
    exponents = torch.arange(least, 2 - least, dtype=dtype)
    powers = torch.tensor([math.ldexp(1, int(e)) for e in exponents], dtype=dtype)
    assert run(aten.exp2.default, exponents).equal(powers)
    assert run(aten.log2.default, powers).equal(exponents)
    assert run(aten.ldexp.Tensor, torch.ones_like(powers), exponents).equal(powers)
    tens = torch.arange(-37 if dtype is torch.float32 else -307, 38, dtype=dtype)
    powers = torch.tensor([float(f"1e{int(e)}") for e in tens], dtype=dtype)
    assert run(aten.log10.default, powers).equal(tens)


@pytest.mark.parametrize("op", [aten.log2.default, aten.log10.default], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logarithms_to_the_last_digits(op: Any, dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(1e-3, 3, 5001), torch.logspace(-30, 30, 5001)]).to(dtype)
    bound = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(run(op, x), op(x), rtol=bound, atol=bound)
    check(op, torch.tensor([0.0, -0.0, -1.0, 1.0, INF, -INF, NAN], dtype=dtype))
