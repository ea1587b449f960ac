"""Sorts, running sums and sines of many elements are PyTorch's: eager's numbers and positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import xla_dynamo.compat  # noqa: F401  (the xla device)
from tests.like_eager.compiled import assert_like_eager

CASES: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "sort": (lambda x: x.exp().sort(-1), "sort.default"),
    "argsort": (lambda x: x.argsort(0, descending=True), "sort.default"),
    "stable": (lambda x: x.round().sort(dim=1, stable=True), "sort.stable"),
    "kthvalue": (lambda x: x.kthvalue(3)[0].exp(), "kthvalue.default"),
    "median": (lambda x: x.median(), "median.default"),
    "median of rows": (lambda x: x.median(-1), "median.dim"),
    "nanmedian": (lambda x: x.nanmedian(0), "nanmedian.dim"),
    "quantile": (lambda x: x.quantile(0.3, dim=1), "sort.default"),
    "cumsum": (lambda x: x.tanh().cumsum(1).exp(), "cumsum.default"),
    "sine": (lambda x: (x * 2).sin() + 1, "sin.default"),
    "angle": (lambda x: torch.atan2(x, x[:1] - 1).abs(), "atan2.default"),
    "counts": (lambda x: (x > 0).long().cumsum(0), "cumsum.default"),
}
LARGE = (128, 1024)


@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, calls: list[str]) -> None:
    function, op = CASES[case]
    x = torch.randn(LARGE, dtype=torch.float64)
    x[3, 4] = torch.nan
    assert_like_eager(function, x)
    assert set(calls) == {op}


@pytest.mark.parametrize("case", CASES)
def test_lazily(case: str, calls: list[str]) -> None:
    function, op = CASES[case]
    x = torch.randn(LARGE, dtype=torch.float64)
    got = pytree.tree_map(Tensor.cpu, function(x.to("xla:0")))
    torch.testing.assert_close(got, function(x))
    assert set(calls) <= {op}


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("argsort", "counts")])
def test_gradients(case: str, calls: list[str]) -> None:
    def values(x: Tensor) -> list[Tensor]:
        results = pytree.tree_leaves(CASES[case][0](x * 2))
        return [each for each in results if each.is_floating_point()]

    assert_like_eager(values, torch.randn(LARGE, dtype=torch.float64, requires_grad=True))
    assert calls


@pytest.mark.parametrize("case", CASES)
def test_small_ones_are_xlas(case: str, calls: list[str]) -> None:
    assert_like_eager(CASES[case][0], torch.randn(8, 32))
    assert calls == []


def test_errors_are_eagers() -> None:
    with pytest.raises(Exception, match=r"selected number k out of range|k out of range"):
        torch.compile(lambda x: x.kthvalue(2000), backend="xla")(torch.randn(LARGE))
