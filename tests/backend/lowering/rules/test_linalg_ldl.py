"""LDL factors and solves with them, against eager's LAPACK."""

from __future__ import annotations

import pytest
import torch

from tests.backend.lowering.rules.matrices import LOOSE, agrees
from tests.like_eager.rules import check_samples, run

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"])
def test_samples(name: str, dtype: torch.dtype) -> None:
    assert check_samples(name, dtype, limit=2)


@pytest.mark.parametrize(
    ("dtype", "hermitian"), [*((dtype, False) for dtype in DTYPES), (torch.complex128, True)]
)
@pytest.mark.parametrize("n", [1, 2, 9])
def test_indefinite_matrices(n: int, hermitian: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a = torch.randn(6, n, n, dtype=dtype)
    a[3:].diagonal(dim1=-2, dim2=-1).zero_()  # forces 2x2 blocks
    agrees(aten.linalg_ldl_factor_ex.default, a, hermitian=hermitian)
    ld, pivots, _ = aten.linalg_ldl_factor_ex(a, hermitian=hermitian)
    assert n == 1 or (pivots < 0).any()
    if n > 1:
        b = torch.randn(6, n, 3, dtype=dtype)
        agrees(aten.linalg_ldl_solve.default, ld, pivots, b, hermitian=hermitian)
        # Eager broadcasts the factors, but not the pivots.
        shared = run(aten.linalg_ldl_solve.default, ld[4:5], pivots[4:5], b, hermitian=hermitian)
        every = (ld[4:5].repeat(6, 1, 1), pivots[4:5].repeat(6, 1))
        want = aten.linalg_ldl_solve(*every, b, hermitian=hermitian)
        torch.testing.assert_close(shared, want, rtol=LOOSE[dtype], atol=LOOSE[dtype])


def test_singular_and_empty_matrices() -> None:
    op = aten.linalg_ldl_factor_ex.default
    agrees(op, torch.zeros(3, 3))
    agrees(op, torch.tensor([[0.0, 0, 0], [0, 2, 1], [0, 1, 3]]))
    agrees(op, torch.zeros(2, 0, 0))
    agrees(op, torch.zeros(0, 3, 3))
