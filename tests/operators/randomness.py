"""Random operators: whether two sources of results draw from the same distribution.

Each result tensor is drawn `draws` times from both. Two-sample Kolmogorov-Smirnov tests compare
every element's values, and each draw's mean and mean magnitude, at a level that the thousands of
tests of a sweep do not reach by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

DRAWS = 256
_LEVEL = 1e-8


def assert_same_distribution(
    actual: Callable[[], Any], expected: Callable[[], Any], draws: int = DRAWS
) -> None:
    """Same structure, shapes and dtypes, and no telling apart by value."""
    bound = math.sqrt(-math.log(_LEVEL / 2) / 2) * math.sqrt(2 / draws)
    gots, wants = _draw(actual, draws), _draw(expected, draws)
    assert len(gots) == len(wants), "the number of results differs"
    for number, (got, want) in enumerate(zip(gots, wants, strict=True)):
        assert got[0].shape == want[0].shape, f"shape {got[0].shape}, eager has {want[0].shape}"
        assert got[0].dtype == want[0].dtype, f"dtype {got[0].dtype}, eager has {want[0].dtype}"
        if not got[0].numel():
            continue
        for name, mine, theirs in zip(
            ("elements", "means", "mean magnitudes"), _views(got), _views(want), strict=True
        ):
            distance = _distance(mine, theirs, _resolution(want[0].dtype))
            assert distance <= bound, (
                f"result {number}: {name} differ in distribution: "
                f"Kolmogorov-Smirnov distance {distance:.3f}, bound {bound:.3f}"
            )


def _draw(source: Callable[[], Any], draws: int) -> list[list[torch.Tensor]]:
    """For each tensor of the result, its draws."""
    rows = [_tensors(source()) for _ in range(draws)]
    return [list(column) for column in zip(*rows, strict=True)]


def _tensors(tree: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(tree)
    return [torch.as_tensor(leaf).detach().clone() for leaf in leaves if leaf is not None]


def _resolution(dtype: torch.dtype) -> float:
    # Between an op's rounding and the distance of two values that differ.
    return torch.finfo(dtype).eps ** 0.6 if dtype.is_floating_point or dtype.is_complex else 0.0


def _views(draws: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Draws [D, ...] as columns to compare: elements [D, N], means [D, 1], magnitudes [D, 1]."""
    stacked = torch.stack(list(draws)).reshape(len(draws), -1)
    if stacked.is_complex():
        stacked = torch.view_as_real(stacked).flatten(1)
    finite = stacked.double().nan_to_num(nan=-1e30)
    return [finite, finite.mean(1, keepdim=True), finite.abs().mean(1, keepdim=True)]


def _distance(a: torch.Tensor, b: torch.Tensor, resolution: float) -> float:
    """The largest Kolmogorov-Smirnov distance of two columns of [D, N].

    Values within `resolution` of each other, absolute or relative, count as one: two programs round
    one value differently.
    """
    columns_a, columns_b = a.T.contiguous().sort().values, b.T.contiguous().sort().values
    return max(_excess(columns_a, columns_b, resolution), _excess(columns_b, columns_a, resolution))


def _excess(a: torch.Tensor, b: torch.Tensor, resolution: float) -> float:
    """How much more of sorted `a` than of sorted `b` [N, D] lies at or below a point, at most."""
    below = torch.arange(1, a.shape[1] + 1, dtype=a.dtype) / a.shape[1]
    above = a + resolution * (1 + a.abs())
    others = torch.searchsorted(b, above, right=True) / b.shape[1]
    return (below - others).max().item()
