"""Rules that read by index, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_samples, run
from xla_dynamo.backend.lowering.registry import Unsupported

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)
I = torch.tensor([0, -1, 1])  # noqa: E741
J = torch.tensor([[2], [-3]])


@pytest.mark.parametrize(
    "indices",
    [
        [I],
        [None, I],
        [I, I],
        [I, J, I],
        [None, I, J.int()],
        [torch.tensor(-1), torch.tensor(-4)],
        [I, None, I],
        [None, J, I],
        [J, None, J],
        [torch.tensor(1), None, I],
        [I.int(), torch.tensor(-1)],
        [torch.zeros(0, dtype=torch.int64)],
    ],
)
def test_index(indices: list[Any]) -> None:
    check(aten.index.Tensor, X, indices)
    check(aten._unsafe_index.Tensor, X, indices)


def test_index_by_mask_is_refused() -> None:
    with pytest.raises(Unsupported, match="depends on data"):
        run(aten.index.Tensor, X, [X > 3])


@pytest.mark.parametrize("x", [X, torch.zeros(0, 4, 5)])
def test_unsafe_masked_index(x: torch.Tensor) -> None:
    at = [torch.tensor([-7, 1, 9]), None, torch.tensor([0, 2, 99])]
    mask = torch.tensor([[False], [True], [False]])
    if x.numel():
        check(aten._unsafe_masked_index.default, x, mask, at, 2.5)
    else:
        assert run(aten._unsafe_masked_index.default, x, mask, at, 2.5).eq(2.5).all()


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_of_a_corner(dim: int) -> None:
    check(aten.gather.default, X, dim, torch.tensor([[[0, 1, 2], [2, 1, 0]]]))


def test_gather_of_scalars() -> None:
    check(aten.gather.default, torch.tensor(3.0), 0, torch.tensor(0))
    check(aten.index_select.default, torch.tensor(3.0), 0, torch.tensor([0]))
    check(aten.index_select.default, X, -1, torch.tensor(2))
    check(aten.take.default, X, torch.tensor([[-1, 7]]))


def test_sizes_given_beforehand() -> None:
    repeats = torch.tensor([2, 0, 3])
    check(aten.repeat_interleave.Tensor, repeats, output_size=5)
    check(aten.nonzero_static.default, X.bool()[0, :2], size=12, fill_value=-3)
    check(aten.nonzero_static.default, torch.zeros(2, 0), size=2)
    check(aten.one_hot.default, torch.tensor([[1, 3], [0, 2]]), 5)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]
)
@pytest.mark.parametrize(
    "name", ["__getitem__", "index_select", "gather", "take", "take_along_dim"]
)
def test_samples(name: str, dtype: torch.dtype) -> None:
    assert check_samples(name, dtype, limit=8)
