from __future__ import annotations

import pytest
import torch

from tests.backend.lowering.rules.matrices import DTYPES, agrees, positive, square
from tests.like_eager.rules import check, run
from xla_dynamo.backend.lowering.registry import Unsupported

aten = torch.ops.aten
BATCHES = [(), (2, 3), (0,)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(dtype, batch, upper):
    a = positive(dtype, batch)
    noise = torch.randn_like(a)
    half = (
        (torch.triu(a) + torch.tril(noise, -1)) if upper else (torch.tril(a) + torch.triu(noise, 1))
    )
    agrees(aten.linalg_cholesky_ex.default, half, upper=upper)
    if hasattr(aten, "cholesky"):  # gone from torch 2.15
        agrees(aten.cholesky.default, a, upper)
    factor = torch.linalg.cholesky(a, upper=upper)
    agrees(aten.cholesky_inverse.default, factor, upper)
    agrees(aten.cholesky_solve.default, torch.randn(*batch, 4, 2, dtype=dtype), factor, upper)
    agrees(aten.cholesky_solve.default, torch.randn(4, 2, dtype=dtype), factor, upper)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_cholesky_reports_the_first_failing_minor(n):
    a = positive(torch.float64, (n + 1,), n)
    for order in range(1, n + 1):
        a[order, order - 1, order - 1] = -1
    _, info = run(aten.linalg_cholesky_ex.default, a)
    assert info.tolist() == aten.linalg_cholesky_ex(a)[1].tolist() == list(range(n + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_lu(dtype, batch, shape):
    a = torch.randn(*batch, *shape, dtype=dtype)
    agrees(aten.linalg_lu_factor_ex.default, a)
    agrees(aten.linalg_lu.default, a)
    lu, pivots, _ = aten.linalg_lu_factor_ex(a)
    for unpack_data, unpack_pivots in ((True, True), (True, False), (False, True)):
        agrees(aten.lu_unpack.default, lu, pivots, unpack_data, unpack_pivots)


def test_lu_without_pivots_is_refused():
    for op in (aten.linalg_lu_factor_ex.default, aten.linalg_lu.default):
        with pytest.raises(Unsupported, match="pivot=False"):
            run(op, torch.eye(2), pivot=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batches", [((), ()), ((3,), (2, 1)), ((), (2,)), ((0,), (0,))])
@pytest.mark.parametrize("left", [True, False])
def test_solves(dtype, batches, left):
    a = square(dtype, batches[0])
    b = torch.randn(*batches[1], *((4, 2) if left else (2, 4)), dtype=dtype)
    lu, pivots, _ = aten.linalg_lu_factor_ex(a)
    for adjoint in (False, True):
        agrees(aten.linalg_lu_solve.default, lu, pivots, b, left=left, adjoint=adjoint)
    agrees(aten._linalg_solve_ex.default, a, b, left=left)
    for upper in (False, True):
        for unit in (False, True):
            options = {"upper": upper, "left": left, "unitriangular": unit}
            agrees(
                aten.linalg_solve_triangular.default, (a / 4).triu() + (a / 4).tril(), b, **options
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_solve_of_vectors(dtype):
    agrees(aten._linalg_solve_ex.default, square(dtype), torch.randn(4, dtype=dtype))
    agrees(aten._linalg_solve_ex.default, square(dtype, (3,)), torch.randn(3, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solve(dtype, upper, transpose, unit):
    a, b = square(dtype, (3,)), torch.randn(2, 3, 4, 2, dtype=dtype)
    agrees(aten.triangular_solve.default, b, a, upper, transpose, unit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
def test_inverse(dtype, batch):
    agrees(aten.linalg_inv_ex.default, square(dtype, batch))


def test_singular_matrices_are_reported():
    a = torch.diag_embed(torch.tensor([[1.0, 2, 3], [0, 2, 3], [1, 2, 0]]))
    for op, args in ((aten.linalg_inv_ex.default, (a,)), (aten.linalg_lu_factor_ex.default, (a,))):
        assert run(op, *args)[-1].tolist() == op(*args)[-1].tolist() == [0, 1, 3]
    assert run(aten._linalg_solve_ex.default, a, a)[3].tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    "op", ["linalg_inv_ex", "linalg_cholesky_ex", "linalg_lu_factor_ex", "linalg_matrix_exp"]
)
def test_matrices_without_elements(op):
    check(getattr(aten, op).default, torch.zeros(2, 0, 0))
