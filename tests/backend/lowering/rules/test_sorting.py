"""Sorting, order statistics, searching and scans, against eager.

Where eager leaves the order of ties open, positions are checked by what they point at.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_samples, run

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
X = torch.tensor([[3.0, NAN, -0.0, INF, 3.0, 0.0], [1.0, -INF, NAN, 1.0, NAN, -2.0]])
X[1, 2] = torch.copysign(torch.tensor(NAN), torch.tensor(-1.0))
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
DTYPES = [*FLOATS, torch.int64, torch.int8, torch.uint8, torch.bool]


def make(dtype: torch.dtype) -> torch.Tensor:
    """Two rows full of ties."""
    return X.to(dtype) if dtype.is_floating_point else torch.randint(0, 5, (2, 6)).to(dtype)


def check_pointing(op: Any, x: torch.Tensor, dim: int, *args: Any) -> None:
    """Values as in eager, and positions that hold them."""
    expected = op(x, *args)[0]
    values, positions = run(op, x, *args)
    torch.testing.assert_close(values, expected, equal_nan=True)
    shape = expected.unsqueeze(dim) if expected.ndim < x.ndim else expected
    found = x.gather(dim, positions.reshape(shape.shape).long()).reshape(expected.shape)
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_is_stable(dtype: torch.dtype, dim: int, descending: bool) -> None:
    x = make(dtype)
    check(aten.sort.stable, x, stable=True, dim=dim, descending=descending)
    check(aten.argsort.stable, x, stable=True, dim=dim, descending=descending)
    check_pointing(aten.sort.default, x, dim, dim, descending)


def test_sort_of_nothing_and_scalars() -> None:
    for x in (torch.zeros(2, 0), torch.tensor(3.0)):
        check(aten.sort.default, x, -1, True)
    check(aten.topk.default, torch.tensor(3.0), 1)
    check(aten.kthvalue.default, torch.tensor(3.0), 1, 0, True)
    check(aten.median.dim, torch.tensor(3.0), 0, True)
    check(aten.mode.default, torch.tensor(3.0))
    check(aten.median.default, torch.zeros(0))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES[:-1])
def test_topk(dtype: torch.dtype, largest: bool) -> None:
    x = make(dtype)
    for dim, k in ((0, 1), (-1, 1), (1, 4), (1, 6)):
        check_pointing(aten.topk.default, x, dim, k, dim, largest)


@pytest.mark.parametrize("dtype", DTYPES[:-1])
def test_order_statistics(dtype: torch.dtype) -> None:
    x = make(dtype)
    for k in (1, 3, 6):
        check_pointing(aten.kthvalue.default, x, 1, k, 1)
    check_pointing(aten.median.dim, x, 1, 1)
    check_pointing(aten.nanmedian.dim, x, 1, 1, True)
    check(aten.median.default, x)
    check(aten.nanmedian.default, x)


def test_median_points_at_the_first_nan() -> None:
    check(aten.median.dim, X, -1)
    check(aten.nanmedian.dim, torch.tensor([[NAN, 2.0, NAN, 7.0, 5.0]]), 1, True)
    check(aten.nanmedian.default, torch.full((3,), NAN))


@pytest.mark.parametrize("dim", [0, 1])
def test_mode_is_the_smallest_of_the_most_frequent(dim: int) -> None:
    x = torch.tensor([[2, 1, 1, 2, 0], [2, 1, 3, 3, 0], [5, 1, 2, 3, 0]])
    check(aten.mode.default, x, dim)
    check(aten.mode.default, x.float(), dim, True)


@pytest.mark.parametrize("size", [5, 200])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right: bool, size: int) -> None:
    rows = torch.randint(0, 50, (3, size)).float().sort(-1).values
    values = torch.randint(-2, 53, (3, 7)).float()
    values[0, 0] = NAN
    check(aten.searchsorted.Tensor, rows, values, right=right)
    check(aten.searchsorted.Tensor, rows[0], values, right=right, out_int32=True)
    check(aten.searchsorted.Scalar, rows[0], 7, right=right)
    check(aten.bucketize.Tensor, values, rows[1], right=right)
    check(aten.bucketize.Scalar, 7, rows[1], right=right)
    order = torch.randperm(size)
    kwargs = {"sorter": order.argsort(), "side": "right"}
    check(aten.searchsorted.Tensor, rows[0][order], values, **kwargs)
    check(aten.searchsorted.Tensor, rows[:, :0], values)


def test_histc() -> None:
    x = torch.tensor([0.0, 0.5, 1.0, 1.0, -3.0, NAN, 2.0])
    check(aten.histc.default, x, 4, 0, 1)
    check(aten.histc.default, x[:5], 3)
    check(aten.histc.default, torch.ones(4), 5)
    check(aten.histc.default, torch.zeros(0), 5)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("shape", [(3, 40), (2, 0), ()])
def test_cumulative_sums(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape).to(dtype)
    check(aten.cumsum.default, x, -1)
    check(aten.cumsum.default, x, 0, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    check(aten.cumprod.default, x, -1)


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_running_extrema(dtype: torch.dtype, dim: int) -> None:
    check(aten.cummax.default, make(dtype), dim)
    check(aten.cummin.default, make(dtype), dim)
    check(aten.cummax.default, make(dtype)[0, 0], dim)
    check(aten.cummin.default, make(dtype)[:, :0], dim)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_topk_of_negative_nans(dtype: torch.dtype) -> None:
    """Whatever their sign bit, they are the largest."""
    x = torch.arange(12.0, dtype=dtype).reshape(2, 6)
    x[0, 2] = torch.tensor(NAN).copysign(torch.tensor(-1.0))
    check(aten.topk.default, x, 2)
    check(aten.topk.default, x, 2, 0)
    check(aten.topk.default, x[:, :0], 0)


@pytest.mark.parametrize("rows", [1, 7, 8, 30])
def test_prefixes_of_few_and_many_rows(rows: int) -> None:
    x = torch.randn(rows, 65)
    x[0, 3], x[-1, 7], x[0, 20], x[-1, 40:] = -INF, INF, NAN, -INF
    for source, dim in ((x, 1), (x.T, 0), (x[:, :1], 1), (x[:0], 1), (x[:, :0], 1)):
        for op in (aten.logcumsumexp, aten.cummax, aten.cummin):
            check(op.default, source, dim)
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.bfloat16):
        check(aten.cummax.default, torch.randint(0, 2, (rows, 9)).to(dtype), 1)
        check(aten.cummin.default, torch.randint(0, 2, (rows, 9)).to(dtype), 1)


def test_logcumsumexp() -> None:
    check(aten.logcumsumexp.default, torch.tensor([-INF, -INF, 1000.0, 1000.0, -1000.0, 5.0]), 0)
    check(aten.logcumsumexp.default, torch.randn(4, 300), 1)
    check(aten.logcumsumexp.default, torch.randn(4, 5).bfloat16(), 0)
    check(aten.logcumsumexp.default, torch.tensor(2.0), 0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logcumsumexp_of_complex_numbers(dtype: torch.dtype) -> None:
    x = 9 * torch.randn(4, 5, 6, dtype=dtype)
    for dim in (0, 1, -1):
        check(aten.logcumsumexp.default, x, dim)
    check(aten.logcumsumexp.default, x[0, 0, 0], 0)
    check(aten.logcumsumexp.default, x[:, :0], 1)
    phases = [complex(-INF, 1), complex(-INF, 2), complex(1, 2), complex(-INF, 3), complex(2, 30)]
    check(aten.logcumsumexp.default, torch.tensor(phases, dtype=dtype), 0)
    check(aten.logcumsumexp.default, torch.tensor([1, complex(NAN, 1), 2], dtype=dtype), 0)


@pytest.mark.parametrize("name", ["sort", "topk", "msort", "cumsum", "cummin", "searchsorted"])
def test_samples(name: str) -> None:
    assert check_samples(name, torch.float32, limit=6)
