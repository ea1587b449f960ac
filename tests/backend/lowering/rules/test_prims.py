"""torch.prims rules against eager."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.inductor_prims  # defines prims.fma

from tests.like_eager.rules import check, run

prims = torch.ops.prims


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.bfloat16])
def test_convert_element_type(dtype: torch.dtype) -> None:
    check(prims.convert_element_type.default, torch.tensor([-1.5, 0.0, 2.7]), dtype)


def test_fma() -> None:
    a, b, c = torch.randn(3, 4, 5, dtype=torch.float64)
    check(prims.fma.default, a, b, c)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fma_rounds_once(dtype: torch.dtype) -> None:
    a, b = torch.randn(2, 500).to(dtype)
    c = (-1.01 * a.double() * b).to(dtype)
    exact = torch.addcmul(c.float(), a.float(), b.float()).to(dtype)
    assert torch.equal(run(prims.fma.default, a, b, c), exact)


def test_broadcast_in_dim() -> None:
    check(prims.broadcast_in_dim.default, torch.randn(3, 1), [2, 3, 4], [1, 2])


def test_iota() -> None:
    got = run(
        prims.iota.default,
        5,
        start=2,
        step=3,
        dtype=torch.int32,
        device=torch.device("cpu"),
        requires_grad=False,
    )
    assert got.tolist() == [2, 5, 8, 11, 14]
    assert got.dtype == torch.int32


def test_device_put() -> None:
    x = torch.randn(3)
    assert torch.equal(run(prims.device_put.default, x, torch.device("cpu")), x)
