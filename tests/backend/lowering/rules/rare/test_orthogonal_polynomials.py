"""Orthogonal polynomials, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, run, to_torch
from xla_dynamo.backend.lowering.rules.rare import orthogonal_polynomials

aten = torch.ops.aten


@pytest.mark.parametrize("name", sorted(orthogonal_polynomials._FAMILIES))
def test_polynomials(name: str) -> None:
    x = torch.linspace(-1.5, 1.5, 13, dtype=torch.float64)[:, None]
    n = torch.arange(-1, 10)
    packet = getattr(aten, f"special_{name}")
    check(packet.default, x, n)
    check(packet.x_scalar, 0.3, n.double())
    check(packet.n_scalar, x.float(), 3)
    if name.startswith("chebyshev"):
        check(getattr(aten, f"special_shifted_{name}").default, x, n)


@pytest.mark.parametrize(
    ("op", "x"),
    [(aten.special_legendre_polynomial_p, 1.0), (aten.special_laguerre_polynomial_l, 0.0)],
    ids=str,
)
def test_polynomials_that_are_1_at_every_degree(op: Any, x: float) -> None:
    ones = run(op.default, torch.full((101,), x), torch.arange(101.0))
    assert to_torch(ones).eq(1).all()
