"""Matrices and bounds for the tests of the linear algebra rules."""

from __future__ import annotations

from typing import Any

import torch
from rule_harness import run

DTYPES = [torch.float32, torch.float64, torch.complex64]
LOOSE = {torch.float32: 2e-4, torch.complex64: 2e-4, torch.float64: 1e-9, torch.complex128: 1e-9}


def square(dtype: torch.dtype, batch: tuple[int, ...] = (), n: int = 4) -> torch.Tensor:
    return torch.randn(*batch, n, n, dtype=dtype) + 2 * torch.eye(n, dtype=dtype)


def positive(dtype: torch.dtype, batch: tuple[int, ...] = (), n: int = 4) -> torch.Tensor:
    a = torch.randn(*batch, n, n, dtype=dtype)
    return a @ a.mH + torch.eye(n, dtype=dtype)


def agrees(op: Any, *args: Any, **kwargs: Any) -> None:
    """Like `check`, at bounds for results that lose digits with the matrix's condition."""
    want, got = op(*args, **kwargs), run(op, *args, **kwargs)
    want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
    for w, g in zip(want, got, strict=True):
        assert g.shape == w.shape
        bound = LOOSE.get(w.dtype, 0)
        torch.testing.assert_close(g.to(w.dtype), w, rtol=bound, atol=bound, equal_nan=True)
