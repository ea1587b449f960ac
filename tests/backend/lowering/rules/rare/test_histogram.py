"""Histograms, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_samples

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["histogram", "histogramdd"])
def test_samples(name: str, dtype: torch.dtype) -> None:
    assert check_samples(name, dtype, limit=10_000, every=13)


def test_values_on_edges_and_outside() -> None:
    x = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, -0.1, 1.1, NAN, INF, -INF])
    check(aten.histogram.bin_ct, x, 10, range=[0.0, 1.0])
    check(aten.histogram.bins_tensor, x, torch.tensor([0.1, 0.3, 0.9]))
    points = torch.stack([x, x.flip(0)], 1)
    check(aten._histogramdd_from_bin_cts.default, points, [3, 5], range=[0.0, 1.0, -0.5, 0.5])


@pytest.mark.parametrize("density", [False, True])
def test_weights_and_densities(density: bool) -> None:
    x, weight = torch.randn(7, 5).double(), torch.randn(7, 5).double()
    check(aten.histogram.bin_ct, x, 4, weight=weight, density=density)
    edges = [torch.tensor([-1.0, 0.0, 0.1]).double() for _ in range(5)]
    op = aten._histogramdd_from_bin_tensors.default
    check(op, x, edges, weight=weight[:, 0].contiguous(), density=density)


def test_one_value_and_none() -> None:
    check(aten.histogram.bin_ct, torch.full((3,), 2.0), 4)
    check(aten.histogram.bin_ct, torch.zeros(0), 4)
    check(aten._histogramdd_bin_edges.default, torch.zeros(0, 2), [2, 3])
