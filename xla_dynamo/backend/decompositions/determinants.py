"""Decompose determinants to LU factors.

`_linalg_det` and `_linalg_slogdet` also return the LU factors, of the transpose where the matrix is
contiguous and real, and their backward solves with the factors accordingly. They are decompositions
and have no rule, because a rule sees no strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def linalg_det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """aten._linalg_det: the determinant, and the LU factors for its backward."""
    lu, pivots, parity, diagonal = _factors(a)
    return diagonal.prod(-1) * parity, lu, pivots


def linalg_slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """aten._linalg_slogdet: sign and logarithm of the determinant, and the LU factors."""
    lu, pivots, parity, diagonal = _factors(a)
    return diagonal.sgn().prod(-1) * parity, diagonal.abs().log().sum(-1), lu, pivots


def _factors(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    transposed = a.is_contiguous() and not a.is_complex()
    lu, pivots, _ = aten.linalg_lu_factor_ex.default(a.mT if transposed else a)
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    identity = torch.arange(1, a.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    parity = 1 - 2 * ((pivots != identity).sum(-1) % 2)
    return lu, pivots, parity.to(lu.dtype), diagonal


LINEAR_ALGEBRA_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._linalg_det.default: linalg_det,
    aten._linalg_slogdet.default: linalg_slogdet,
}
