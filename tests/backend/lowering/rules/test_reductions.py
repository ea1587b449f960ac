"""Reductions, positions of extrema and norms, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_samples

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
X = torch.tensor([[3.0, 1.0, 3.0, -INF], [NAN, 2.0, INF, NAN], [0.0, -0.0, -1.0, 0.0]])
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32]
DTYPES += [torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize(
    "op", [aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default]
)
def test_first_extremum_or_nan(op: Any, dim: int, keepdim: bool) -> None:
    check(op, X, dim, keepdim)
    check(op, X[2].ge(0).byte().expand(2, 4), dim, keepdim)
    check(op, torch.tensor(2.0), dim, keepdim)
    if op in (aten.max.dim, aten.min.dim):
        check(op, X[2].ge(0).expand(2, 4), dim, keepdim)


@pytest.mark.parametrize("op", [aten.argmax.default, aten.argmin.default])
def test_position_in_all_dims(op: Any) -> None:
    check(op, X)
    check(op, X, None, True)
    check(op, torch.zeros(0, 3), 1)


@pytest.mark.parametrize("x", [X, X[:, 1:2], torch.zeros(0, 3), torch.tensor(2.0)])
def test_extrema(x: torch.Tensor) -> None:
    check(aten.amax.default, x, [-1], True)
    check(aten.amin.default, x, [-1])
    check(aten.aminmax.default, x, dim=-1)
    if x.numel():
        check(aten.amax.default, x, [])
        check(aten.max.default, x)
        check(aten.min.default, x)
        check(aten.aminmax.default, x, keepdim=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4), (2, 0), ()])
def test_sums(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape).mul(3).to(dtype)
    check(aten.sum.default, x)
    check(aten.sum.dim_IntList, x, [-1], True)
    check(aten.sum.dim_IntList, x, [])
    check(aten.sum.dim_IntList, x, None, dtype=torch.float64 if dtype != torch.complex64 else None)
    check(aten.prod.default, x)
    check(aten.prod.dim_int, x, -1)
    check(aten.any.dim, x, -1)
    check(aten.all.dims, x, [-1], True)
    check(aten.count_nonzero.dim_IntList, x, [-1])
    check(aten.mean.default, x, dtype=None if dtype.is_floating_point else torch.complex64)


def test_long_sums_of_16_bit_floats_do_not_stall() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        check(aten.sum.default, torch.ones(5000, dtype=dtype))
        check(aten.mean.dim, torch.full((2, 3000), 1.5, dtype=dtype), [1])


def test_empty_list_of_dims_for_any() -> None:
    check(aten.any.dims, X, [])
    check(aten.all.dims, X, [], True)
    check(aten.any.dims, X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128])
@pytest.mark.parametrize("correction", [None, 0, 1, 2.5])
def test_variance(correction: float | None, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 4) * 2 + 100).to(dtype)
    for dims in (None, [0], [0, -1]):
        check(aten.var.correction, x, dims, correction=correction)
        check(aten.std.correction, x, dims, correction=correction, keepdim=True)
    check(aten.var_mean.correction, x, [1], correction=correction)
    check(aten.std_mean.correction, x, [1], correction=correction, keepdim=True)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variance_of_too_few() -> None:
    check(aten.var.correction, torch.randn(3, 4), [1], correction=5)
    check(aten.var.correction, torch.randn(3, 1), [1], correction=1)


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1, -2, INF, -INF])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_norms(ord: float, dtype: torch.dtype) -> None:
    x = torch.randn(3, 4, dtype=dtype)
    check(aten.linalg_vector_norm.default, x, ord)
    check(aten.linalg_vector_norm.default, x, ord, [-1], True)
    check(aten.norm.ScalarOpt_dim, x, ord, [0], True)
    check(aten.norm.Scalar, x, ord)
    check(aten.dist.default, x, x.flip(0), ord)


def test_norms_with_dtype() -> None:
    x = torch.randn(3, 4)
    check(aten.linalg_vector_norm.default, x, 2, [0], dtype=torch.float64)
    check(aten.norm.ScalarOpt_dtype, x, 2, dtype=torch.float64)
    check(aten.norm.ScalarOpt_dim_dtype, x, None, [1], True, dtype=torch.float64)
    check(aten.linalg_vector_norm.default, torch.zeros(0), 2)


def test_logsumexp() -> None:
    for x in (X, torch.full((2, 3), -INF), torch.tensor([1000.0, 1000.0]), torch.zeros(2, 0)):
        check(aten.logsumexp.default, x, [-1])
    check(aten.logsumexp.default, torch.tensor([1, 2, 3]), [0], True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "amax", "aminmax", "any", "all"])
def test_samples(name: str, dtype: torch.dtype) -> None:
    assert check_samples(name, dtype, every=3, limit=6)


@pytest.mark.parametrize("name", ["mean", "nanmean", "var_mean", "std", "logsumexp"])
def test_samples_of_means(name: str) -> None:
    assert check_samples(name, torch.float32, every=3, limit=6)
