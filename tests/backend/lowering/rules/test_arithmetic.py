"""Element-wise arithmetic, bits, comparisons and selections, against eager."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_samples, run
from xla_dynamo.backend.lowering.registry import Unsupported

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
SPECIAL = [-INF, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, INF, NAN]
FIRST, SECOND = torch.tensor(list(itertools.product(SPECIAL, repeat=2))).T
INTEGERS = itertools.product([-7, -3, -1, 0, 1, 5, 100], [-5, -2, -1, 1, 3, 7])
FIRST_INT, SECOND_INT = torch.tensor(list(INTEGERS)).T
INTS = [torch.int64, torch.int32, torch.int8, torch.uint8]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "op",
    [
        aten.remainder.Tensor,
        aten.fmod.Tensor,
        aten.floor_divide.default,
        aten.div.Tensor,
        aten.pow.Tensor_Tensor,
        aten.maximum.default,
        aten.minimum.default,
        aten.fmax.default,
        aten.fmin.default,
        aten.clamp_min.Tensor,
        aten.heaviside.default,
        aten.atan2.default,
        aten.hypot.default,
        aten.copysign.Tensor,
        aten.xlogy.Tensor,
        aten.special_xlog1py.default,
        aten.logaddexp.default,
        aten.logaddexp2.default,
        aten.nextafter.default,
        aten.eq.Tensor,
        aten.lt.Tensor,
        aten.ge.Tensor,
        aten.logical_xor.default,
        aten.isclose.default,
    ],
)
def test_non_finite_pairs(op: Any, dtype: torch.dtype) -> None:
    check(op, FIRST.to(dtype), SECOND.to(dtype))


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize(
    "op",
    [
        aten.remainder.Tensor,
        aten.fmod.Tensor,
        aten.floor_divide.default,
        aten.div.Tensor,
        aten.pow.Tensor_Tensor,
        aten.gcd.default,
        aten.lcm.default,
        aten.bitwise_xor.Tensor,
        aten.bitwise_left_shift.Tensor,
        aten.bitwise_right_shift.Tensor,
        aten.atan2.default,
    ],
)
def test_integer_pairs(op: Any, dtype: torch.dtype) -> None:
    first, second = FIRST_INT.to(dtype), SECOND_INT.to(dtype)
    if op in (aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor):
        second = second % 7
    check(op, first, second)


def test_signed_integers_to_any_power() -> None:
    base, exponent = torch.meshgrid(torch.arange(-4, 5), torch.arange(0, 70, 3), indexing="ij")
    check(aten.pow.Tensor_Tensor, base, exponent)
    check(aten.pow.Tensor_Tensor, torch.tensor([1, -1, -1, 5]), torch.tensor([-2, -3, -4, -1]))


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_rounded_division(dtype: torch.dtype, mode: str | None) -> None:
    x, y = FIRST_INT.to(dtype), SECOND_INT.to(dtype)
    check(aten.div.Tensor_mode, x, y, rounding_mode=mode)
    check(aten.div.Scalar_mode, x, 3, rounding_mode=mode)
    check(aten.div.Tensor_mode, x, torch.tensor(2.5), rounding_mode=mode)


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_that_are_added_make_zeros_positive(dtype: torch.dtype) -> None:
    x = torch.tensor([-0.0, 0.0, 2.0, -3.0], dtype=dtype)
    zeros = ((0, 1), (0.0, 2), (False, 1), (0, -1), (-0.0, 1))

    def signs(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.signbit(torch.add(x, y, alpha=alpha)) for y, alpha in zeros]

    assert all(map(torch.equal, torch.compile(signs, backend="xla")(x), signs(x)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [0, 0.0, -0.0, 2, -1.5])
def test_signs_of_zeros_in_scaled_differences(dtype: torch.dtype, alpha: float) -> None:
    """Eager adds (-alpha) * y, where alpha may be the integer 0, which has no sign."""
    x = torch.tensor([-0.0, 0.0, -0.0, 0.0, 3.0], dtype=dtype)
    y = torch.tensor([-0.0, 0.0, 2.0, -5.0, 1.5], dtype=dtype)

    def signs(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        results = [torch.sub(x, y, alpha=alpha), torch.rsub(x, y, alpha=alpha)]
        return [*results, *map(torch.signbit, results)]

    expected = signs(x, y)
    assert all(map(torch.equal, torch.compile(signs, backend="xla")(x, y), expected))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool, torch.complex64])
def test_numbers_and_mixed_dtypes(dtype: torch.dtype) -> None:
    x = torch.tensor([[-3.0, 2.0], [0.0, 5.0]]).to(dtype)
    ints = torch.tensor([2, 3], dtype=torch.int16)
    for packet in (aten.add, aten.mul, aten.eq):
        check(packet.Tensor, x, ints)
        check(packet.Tensor, x, torch.tensor(2.5, dtype=torch.float64))
        check(packet.Scalar, x, 2)
        check(packet.Scalar, x, True)
        check(packet.Scalar, x, 2.5)
    check(aten.add.Tensor, x, x, alpha=2 if dtype != torch.bool else True)
    if dtype != torch.bool:
        check(aten.sub.Tensor, x, 1.5, alpha=2)
        check(aten.rsub.Scalar, x, 4, 2)
    check(aten.div.Tensor, x, 7)
    check(aten.where.self, x != 0, x, torch.ones(1, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
@pytest.mark.parametrize("exponent", [2, 3, -1, -2, 0.5, -0.5, 0, 1.5, 17, 5.0])
def test_constant_powers(exponent: float, dtype: torch.dtype) -> None:
    check(aten.pow.Tensor_Scalar, torch.rand(20).add(0.3).to(dtype), exponent)
    check(aten.pow.Scalar, exponent, torch.rand(20).to(dtype))


def test_constant_powers_of_integers() -> None:
    x = torch.tensor([-3, 0, 2, 11])
    for exponent in (0, 1, 5, 40, 2.0, 0.5, 1.5):
        check(aten.pow.Tensor_Scalar, x, exponent)
    with pytest.raises(Unsupported, match="negative power"):
        run(aten.pow.Tensor_Scalar, x, -2)


def test_clamp() -> None:
    x, low, high = FIRST[:30], torch.tensor(NAN), torch.tensor([1.0])
    check(aten.clamp.default, x, -1, 2)
    check(aten.clamp.default, x, 2, -1)
    check(aten.clamp.default, x, None, 0.5)
    check(aten.clamp.Tensor, x, low, high)
    check(aten.clamp.Tensor, x.reshape(5, 6), torch.zeros(5, 1), torch.ones(6))
    check(aten.clamp.default, torch.arange(-3, 3), -1.5, 2)
    check(aten.clamp_max.default, torch.arange(5, dtype=torch.uint8), 3)


def test_lerp_ends_exactly() -> None:
    weight = torch.tensor([0.0, 0.3, 0.5, 1.0])
    check(aten.lerp.Tensor, torch.full((4,), 1e8), torch.full((4,), 0.1), weight)
    check(aten.lerp.Scalar, torch.randn(4).bfloat16(), torch.randn(4).bfloat16(), 0.7)


def test_wide_shifts() -> None:
    x = torch.tensor([-8, 8, 1], dtype=torch.int32)
    for amount in (31, 32, 40):
        check(aten.bitwise_right_shift.Tensor_Scalar, x, amount)
        check(aten.bitwise_right_shift.Tensor_Scalar, x.to(torch.uint8), amount)
    check(aten.bitwise_left_shift.Tensor_Scalar, x, 32)
    check(aten.__rshift__.Scalar, x, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
@pytest.mark.parametrize("name", ["addcmul", "lerp", "addcdiv", "eq", "masked_fill", "where"])
def test_samples(name: str, dtype: torch.dtype) -> None:
    if not (dtype == torch.int64 and name in ("lerp", "addcdiv")):
        assert check_samples(name, dtype, limit=6)


def test_membership() -> None:
    x = torch.randint(0, 50, (4, 30))
    for tests in (torch.arange(0, 50, 7), torch.arange(0, 300, 3), torch.zeros(0)):
        check(aten.isin.Tensor_Tensor, x, tests)
        check(aten.isin.Tensor_Tensor, x, tests, invert=True)
    check(aten.isin.Tensor_Scalar, x, 3)
    check(aten.isin.Tensor_Tensor, FIRST, torch.arange(-40.0, 40.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_quotient_by_a_constant_is_rounded_once(dtype: torch.dtype) -> None:
    """A product with the constant's 16-bit reciprocal would be a unit off."""
    x = torch.linspace(-200, 200, 999).to(dtype)
    compiled = torch.compile(lambda x: (x / 5, x / 3), backend="xla", fullgraph=True)
    for quotient, divisor in zip(compiled(x), (5, 3), strict=True):
        assert torch.equal(quotient, x / divisor)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.3, -1.7, 3])
def test_16_bit_sums_of_products_are_rounded_once(dtype: torch.dtype, value: float) -> None:
    """Bit for bit: sums that nearly cancel would show a product that was rounded before."""
    a, b = torch.randn(2, 512).to(dtype)  # eager's remainder of its vectors rounds more often
    b = torch.where(b.abs() < 0.1, torch.ones_like(b), b)
    alpha = torch.tensor(value, dtype=dtype).double()  # so in eager too
    for op, args, minus in (
        (aten.add.Tensor, (a,), -alpha * a),
        (aten.sub.Tensor, (a,), alpha * a),
        (aten.addcmul.default, (a, b), -value * a.double() * b),
        (aten.addcdiv.default, (a, b), -value * a.double() / b),
    ):
        named = {"value" if len(args) == 2 else "alpha": value}
        x = (minus * 1.01).to(dtype)
        assert torch.equal(run(op, x, *args, **named), op(x, *args, **named))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1, 1 + 1j, 1 - 1j, 1j, -1j, -1, -1 + 1j])
def test_powers_of_a_complex_zero(exponent: complex) -> None:
    bases = torch.tensor([0j, -0.0 + 0j, 1 + 1j])
    check(aten.pow.Tensor_Tensor, bases, torch.full((3,), exponent, dtype=torch.complex64))
    check(aten.pow.Tensor_Scalar, bases, exponent)
    check(aten.pow.Scalar, 0, torch.full((1,), exponent, dtype=torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ldexp_whose_power_alone_is_out_of_range(dtype: torch.dtype) -> None:
    least, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    exponents = torch.tensor([-2000, -250, -100, -1, 0, 1, 100, 250, 2000])
    for x in (0.0, -1.0, 1.5, least, most, INF, NAN):
        check(aten.ldexp.Tensor, torch.tensor(x, dtype=dtype), exponents)
        check(aten.ldexp.Tensor, torch.tensor(x, dtype=dtype), exponents / 4)
        check(aten.ldexp.Tensor, torch.tensor(x, dtype=dtype), exponents.to(torch.uint8))
        check(aten.ldexp.Tensor, torch.tensor(x, dtype=dtype), exponents.to(torch.int8))
