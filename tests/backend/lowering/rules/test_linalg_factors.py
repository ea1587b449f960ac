from __future__ import annotations

import pytest
import torch

from tests.backend.lowering.rules.matrices import DTYPES, LOOSE, agrees, positive, square
from tests.like_eager.rules import run

aten = torch.ops.aten
BATCHES = [(2, 3), (0,)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_qr(dtype, batch, shape):
    a = torch.randn(*batch, *shape, dtype=dtype)
    for mode in ("reduced", "complete", "r"):
        agrees(aten.linalg_qr.default, a, mode)
    agrees(aten.geqrf.default, a)
    reflectors, taus = aten.geqrf(a)
    if shape[0] >= shape[1]:
        agrees(aten.linalg_householder_product.default, reflectors, taus)
    agrees(aten.ormqr.default, reflectors, taus, torch.randn(*batch, shape[0], 2, dtype=dtype))
    c = torch.randn(*batch, 2, shape[0], dtype=dtype)
    agrees(aten.ormqr.default, reflectors, taus, c, False, True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_svd(dtype, batch, shape, full):
    a = torch.randn(*batch, *shape, dtype=dtype)
    want, (u, s, vh) = aten._linalg_svd(a, full), run(aten._linalg_svd.default, a, full)
    assert [x.shape for x in (u, s, vh)] == [x.shape for x in want]
    torch.testing.assert_close(s, want[1], rtol=LOOSE[dtype], atol=LOOSE[dtype])
    rank = min(shape)
    product = (u[..., :rank] * s[..., None, :]) @ vh[..., :rank, :]
    torch.testing.assert_close(product, a, rtol=LOOSE[dtype], atol=LOOSE[dtype])
    for q in (u.mH @ u, vh @ vh.mH):
        unit = torch.eye(q.shape[-1], dtype=dtype).expand_as(q)
        torch.testing.assert_close(q, unit, rtol=LOOSE[dtype], atol=LOOSE[dtype])
    agrees(aten._linalg_svd.default, a, full, False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("uplo", ["L", "U", "l"])
def test_eigh(dtype, batch, uplo):
    a = positive(dtype, batch)
    noise = torch.randn_like(a)
    lower = uplo in "Ll"
    half = (a.tril() + noise.triu(1)) if lower else (a.triu() + noise.tril(-1))
    values, vectors = run(aten._linalg_eigh.default, half, uplo)
    torch.testing.assert_close(values, aten._linalg_eigh(half, uplo)[0], rtol=1e-4, atol=1e-4)
    product = (vectors * values[..., None, :].to(dtype)) @ vectors.mH
    torch.testing.assert_close(product, a, rtol=LOOSE[dtype], atol=LOOSE[dtype])
    agrees(aten._linalg_eigh.default, half, uplo, False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
def test_eig(dtype, batch):
    a = square(dtype, batch)
    values, vectors = run(aten.linalg_eig.default, a)
    assert values.dtype == vectors.dtype == aten.linalg_eig(a)[0].dtype
    wide = a.to(values.dtype)
    torch.testing.assert_close(
        wide @ vectors, vectors * values[..., None, :], rtol=LOOSE[dtype], atol=LOOSE[dtype]
    )
    torch.testing.assert_close(
        torch.linalg.vector_norm(vectors, dim=-2).to(dtype), torch.ones(*batch, 4, dtype=dtype)
    )
    agrees(aten._linalg_eigvals.default, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 10.0])
def test_matrix_exp(dtype, scale):
    a = scale * torch.randn(2, 3, 4, 4, dtype=dtype)
    a = (a - a.mH) / 2 + torch.eye(4, dtype=dtype)
    agrees(aten.linalg_matrix_exp.default, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (2, 5, 3), (0, 3), (3, 0)])
def test_pinv(dtype, shape):
    a = torch.randn(shape, dtype=dtype)
    op = aten.linalg_pinv.atol_rtol_tensor
    real = a.real.dtype
    agrees(op, a)
    for tolerances in ({"atol": 0.5}, {"rtol": 0.5}, {"atol": 0.0}, {"atol": 0.1, "rtol": 0.4}):
        agrees(op, a, **{name: torch.tensor(v, dtype=real) for name, v in tolerances.items()})
    if shape[-1] == shape[-2]:
        agrees(op, a + a.mH, hermitian=True)
    flat = a[..., :1] @ a[..., :1, :] if a.numel() else a
    agrees(op, flat)


def test_matrix_exp_of_matrices_of_very_different_norms():
    rotation = torch.tensor([[0.0, -1], [1, 0]], dtype=torch.float64)
    angles = torch.tensor([0.0, 1e-9, 1.0, 3.5, 3.6, 1e4], dtype=torch.float64)
    agrees(aten.linalg_matrix_exp.default, angles[:, None, None] * rotation)
    whole = run(aten.linalg_matrix_exp.default, torch.tensor([[-1e30]]))
    assert whole.tolist() == [[0.0]]
    assert run(aten.linalg_matrix_exp.default, torch.full((2, 2), float("nan"))).isnan().all()


def test_matrix_exp_in_float32_is_no_less_accurate_than_eagers():
    a = 18 * torch.rand(100, 5, 5) - 9
    truth = torch.linalg.matrix_exp(a.double())

    def error(answer):
        return ((answer - truth).norm(dim=(1, 2)) / truth.norm(dim=(1, 2))).mean()

    ours = run(aten.linalg_matrix_exp.default, a)
    assert error(ours) < error(torch.linalg.matrix_exp(a))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_matrix_exp_of_16_bit_floats_is_computed_in_float32(dtype):
    a = torch.randn(3, 4, 4).to(dtype)
    exact = torch.linalg.matrix_exp(a.double()).to(dtype)
    got = run(aten.linalg_matrix_exp.default, a).to(dtype)
    torch.testing.assert_close(got, exact, rtol=torch.finfo(dtype).eps, atol=0)
