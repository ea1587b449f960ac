"""Matrix products, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_within, run

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32]
DTYPES += [torch.uint8, torch.complex64]


def make(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex64).mul(3).to(dtype)


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dtype: torch.dtype) -> None:
    x, y = make((2, 3, 4), dtype), make((2, 4, 5), dtype)
    check(aten.bmm.default, x, y)
    check(aten.mm.default, x[0], y[0])
    check(aten.mv.default, x[0], y[0, :, 0])
    check(aten.dot.default, x[0, 0], y[0, :, 0])
    check(aten.vdot.default, x[0, 0], y[0, :, 0])
    check(aten.matmul.default, x, y[0])
    check(aten.linear.default, x, y[0].mT.contiguous())
    check(aten.linear.default, x, y[0].mT.contiguous(), make((5,), dtype))
    check(aten.mm.default, x[0, :, :0], y[0, :0])


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("scales", [{}, {"beta": 2, "alpha": 3}, {"beta": 0}, {"alpha": 0}])
@pytest.mark.parametrize("dtype", DTYPES)
def test_accumulating_products(dtype: torch.dtype, scales: dict[str, Any]) -> None:
    x, y = make((2, 3, 4), dtype), make((2, 4, 5), dtype)
    check(aten.addmm.default, make((5,), dtype), x[0], y[0], **scales)
    check(aten.addmm.default, make((1, 1), dtype), x[0], y[0], **scales)
    check(aten.addmv.default, make((3,), dtype), x[0], y[0, :, 0], **scales)
    check(aten.baddbmm.default, make((2, 1, 5), dtype), x, y, **scales)
    for op, args in (
        (aten.addbmm.default, (make((3, 5), dtype), x, y)),
        (aten.addr.default, (make((4, 5), dtype), x[0, 0], y[0, 0])),
    ):
        if dtype in (torch.bfloat16, torch.float16):  # eager rounds each partial sum
            expected = op(*(arg.float() for arg in args), **scales).to(dtype)
            torch.testing.assert_close(run(op, *args, **scales), expected)
        else:
            check(op, *args, **scales)


def test_unread_accumulator_hides_its_nan() -> None:
    nan = torch.full((3,), float("nan"))
    check(aten.addmm.default, nan, torch.ones(2, 4), torch.ones(4, 3), beta=0)


def test_integer_products() -> None:
    x, y = torch.randint(-128, 127, (32, 16)), torch.randint(-128, 127, (16, 8))
    check(aten._int_mm.default, x.to(torch.int8), y.to(torch.int8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_int8_weights(dtype: torch.dtype) -> None:
    x, weight = torch.randn(4, 32).to(dtype), torch.randint(-128, 128, (16, 32), dtype=torch.int8)
    bounds = {torch.float32: 1e-4}  # of sums of hundreds, in another order
    check_within(bounds, aten._weight_int8pack_mm.default, x, weight, torch.rand(16).to(dtype))
    check(aten._weight_int8pack_mm.default, x[:1], weight, torch.zeros(16).to(dtype))


def test_fractional_scales_of_16_bit_floats_are_not_rounded() -> None:
    x, y = torch.randn(16, 64).bfloat16(), torch.randn(64, 16).bfloat16()
    check(aten.addmm.default, torch.randn(16).bfloat16(), x, y, beta=0.3, alpha=0.7)


def test_trilinear() -> None:
    x, y, z = torch.randn(2, 3), torch.randn(5, 3, 4), torch.randn(2, 4)
    check(torch.ops.aten._trilinear.default, x, y, z, [1, 3], [0], [1, 2], [2, 3])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("rows", [False, True])
def test_scaled(rows: bool, dtype: torch.dtype) -> None:
    x, y = torch.randn(16, 32).to(dtype), torch.randn(32, 16).to(dtype).T.contiguous().T
    scales = (torch.rand(16, 1), torch.rand(1, 16)) if rows else (torch.rand(()), torch.rand(()))
    bias = None if rows else torch.randn(16)

    def function(*operands: Any) -> Any:
        return torch._scaled_mm(*operands, out_dtype=torch.float32)

    compiled = torch.compile(function, backend="xla", options={"fallback": "error"})
    got = compiled(x, y, *scales, bias)
    exact = scales[0] * scales[1] * (x.double() @ y.double()) + (0 if bias is None else bias)
    torch.testing.assert_close(got, exact.float())


def test_trilinear_of_a_dim_that_all_miss() -> None:
    x, y, z = torch.randn(3, 2, 3, 6)
    check(aten._trilinear.default, x, y, z, [0], [0], [0], [2])
