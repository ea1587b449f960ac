"""Matrices and bounds for the tests of the linear algebra rules."""

from __future__ import annotations

from functools import partial

import torch

from tests.like_eager.rules import check_within

DTYPES = [torch.float32, torch.float64, torch.complex64]
LOOSE = {torch.float32: 2e-4, torch.complex64: 2e-4, torch.float64: 1e-9, torch.complex128: 1e-9}

# Like `check`, at bounds for results that lose digits with the matrix's condition.
agrees = partial(check_within, LOOSE)


def square(dtype: torch.dtype, batch: tuple[int, ...] = (), n: int = 4) -> torch.Tensor:
    return torch.randn(*batch, n, n, dtype=dtype) + 2 * torch.eye(n, dtype=dtype)


def positive(dtype: torch.dtype, batch: tuple[int, ...] = (), n: int = 4) -> torch.Tensor:
    a = torch.randn(*batch, n, n, dtype=dtype)
    return a @ a.mH + torch.eye(n, dtype=dtype)
