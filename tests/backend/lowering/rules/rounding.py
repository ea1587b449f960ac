"""Compares 16-bit results with float64 truth, where two right answers may round differently."""

from __future__ import annotations

from typing import Any

import torch
from rule_harness import run
from torch.utils import _pytree as pytree


def check_rounding(op: Any, *args: Any, **kwargs: Any) -> None:
    """Assert that the rule of `op` is about as near to the float64 result as eager is."""
    exact, eager, actual = (
        [result] if isinstance(result, torch.Tensor) else list(result)
        for result in (
            op(*_to_double(args), **_to_double(kwargs)),
            op(*args, **kwargs),
            run(op, *args, **kwargs),
        )
    )
    for truth, want, got in zip(exact, eager, actual, strict=True):
        if got is None:
            continue
        assert got.shape == want.shape
        got = got.to(want.dtype)
        if not want.dtype.is_floating_point or not want.numel():
            torch.testing.assert_close(got, want)
            continue
        rounding = 4 * max(torch.finfo(want.dtype).eps, 1e-6) * truth.abs().max()
        bound = 2 * (want.double() - truth).abs().max() + rounding
        error = (got.double() - truth).abs().max()
        assert error <= bound, (op, want.dtype, error, bound)


def _to_double(args: Any) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda t: t.double() if t.dtype.is_floating_point else t, args
    )
