"""Pairwise distances, weight norm, and their gradients against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check
from xla_dynamo.backend.lowering.rules import distances, weight_norm  # noqa: F401

aten = torch.ops.aten

POWERS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("lead", "rows"), [((), 4), ((2, 3), 4), ((2,), 30)])
@pytest.mark.parametrize("mode", [None, 1, 2])
def test_cdist(p, lead, rows, mode):
    x1, x2 = torch.randn(*lead, rows, 5).double(), torch.randn(*lead, 3, 5).double()
    x2[..., 0, :] = x1[..., 0, :] if mode != 1 and rows <= 25 else x2[..., 0, :]
    x2[..., 1, 2] = x1[..., 1, 2]
    check(aten._cdist_forward.default, x1, x2, p, mode)
    distance = aten._cdist_forward.default(x1, x2, p, mode)
    grad = torch.randn_like(distance)
    check(aten._cdist_backward.default, grad, x1, x2, p, distance)


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 3, 0), (2, 0, 5)])
def test_no_distances(shape):
    x1, x2 = torch.randn(shape), torch.randn(2 if shape[0] else 0, 4, shape[2])
    check(aten._cdist_forward.default, x1, x2, 2.0, None)
    distance = aten._cdist_forward.default(x1, x2, 2.0, None)
    check(aten._cdist_backward.default, torch.randn_like(distance), x1, x2, 2.0, distance)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("rows", [5, 1])
def test_pdist(p, rows):
    x = torch.randn(rows, 4).double()
    check(aten._pdist_forward.default, x, p)
    distance = aten._pdist_forward.default(x, p)
    check(aten._pdist_backward.default, torch.randn_like(distance), x, p, distance)


@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(dim):
    v = torch.randn(4, 3, 5)
    g = torch.randn([n if axis == dim else 1 for axis, n in enumerate(v.shape)])
    _, norms = aten._weight_norm_interface(v, g, dim)
    args = (torch.randn_like(v), v, g, norms, dim)
    check(aten._weight_norm_interface_backward.default, *args)


def test_differences_that_are_no_numbers_have_no_count():
    x = torch.tensor([[0.0, float("inf")], [float("nan"), 1.0], [1.0, 1.0]])
    check(aten._cdist_forward.default, x, x, 0.0, None)
