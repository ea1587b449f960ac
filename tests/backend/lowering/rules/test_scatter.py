"""Rules that write by index, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_samples

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)
ROWS = torch.tensor([1, -1, 1])
MASK = X[:, :, 0] % 3 == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
@pytest.mark.parametrize(
    ("indices", "shape"),
    [([ROWS], (3, 4, 5)), ([None, ROWS], (5,)), ([ROWS, None, ROWS], (3, 4)), ([ROWS], ())],
)
def test_index_put_accumulates(
    indices: list[Any], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    values = torch.randn(shape).mul(8).to(dtype)
    check(aten.index_put.default, X.to(dtype), indices, values, True)
    check(aten._unsafe_index_put.default, X.to(dtype), indices, values.flatten()[:1], False)
    check(aten._index_put_impl.default, X.to(dtype), indices, values, True, True)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("indices", "shape"),
    [
        ([MASK], ()),
        ([MASK], (1,)),
        ([MASK], (5,)),
        ([MASK], (int(MASK.sum()), 5)),
        ([MASK], (int(MASK.sum()), 1)),
        ([None, X[0] > 9], (int((X[0] > 9).sum()),)),
        ([None, X[0] > 9], (3, int((X[0] > 9).sum()))),
        ([X > 7], (1,)),
        ([X > 7], (52,)),
    ],
)
def test_index_put_by_mask(indices: list[Any], shape: tuple[int, ...], accumulate: bool) -> None:
    check(aten.index_put.default, X, indices, torch.randn(shape), accumulate)


M3, M4 = torch.tensor([True, False, True]), torch.tensor([True, False, True, True])
ONE = torch.tensor([False, True, False])
M34 = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("indices", "shape"),
    [
        ([M3, torch.tensor([1, -1])], (2, 5)),
        ([M3, torch.tensor([1, -1])], ()),
        ([M3, torch.tensor([1, 3]), torch.tensor([0])], (2,)),
        ([M3, torch.tensor(2)], (1,)),
        ([M3, torch.tensor(2)], (2, 1)),
        ([M3, torch.tensor([[0], [3]])], (2, 2, 5)),
        ([M3, torch.tensor([[0], [3]])], (5,)),
        ([M3, None, torch.tensor([4, 0])], (2, 4)),
        ([M3, None, torch.tensor(4)], (4,)),
        ([torch.tensor([2, 0, 1]), M4], (3, 5)),
        ([torch.tensor(2), M4], (5,)),
        ([torch.tensor(-1), M4, torch.tensor([[1], [2]])], (2, 3)),
        ([ONE, torch.tensor([3, 0, 2])], (3, 5)),
        ([ONE, M4], (3, 5)),
        ([ONE, M4], ()),
        ([M3 & False, M4 & False | (torch.arange(4) == 1)], ()),
        ([M3 & False, torch.tensor([1])], (5,)),
        ([M34, torch.tensor([0, 4, 2])], (3,)),
        ([M34, torch.tensor(3)], ()),
        ([M3.byte(), torch.tensor(2)], ()),
    ],
)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_index_put_by_masks_among_other_indices(
    indices: list[Any], shape: tuple[int, ...], accumulate: bool
) -> None:
    check(aten.index_put.default, X, indices, torch.randn(shape), accumulate)


def test_unsafe_masked_index_put_accumulate() -> None:
    mask = torch.tensor([[True], [False], [True]])
    at = [torch.tensor([-7, 1, 9]), None, torch.tensor([0, 2, 99])]
    check(aten._unsafe_masked_index_put_accumulate.default, X, mask, at, torch.randn(3, 4))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
def test_scatter_reduce_of_a_corner(reduce: str, include_self: bool, dtype: torch.dtype) -> None:
    index = torch.tensor([[[0, 4], [0, 0], [4, 4]]])
    source = torch.randn(2, 3, 4).mul(20).to(dtype)
    kwargs = {"include_self": include_self}
    check(aten.scatter_reduce.two, X.to(dtype), -1, index, source, reduce, **kwargs)


def test_scatter_reduce_propagates_nan() -> None:
    source = torch.tensor([1.0, float("nan"), 2.0])
    check(aten.scatter_reduce.two, torch.zeros(2), 0, torch.tensor([0, 1, 1]), source, "amax")


def test_scalars() -> None:
    x, zero = torch.tensor(3.0), torch.tensor(0)
    check(aten.scatter.src, x, 0, zero, torch.tensor(4.0))
    check(aten.scatter.value, x, 0, zero, 4)
    check(aten.index_fill.int_Scalar, x, 0, zero, 4)
    check(aten.index_add.default, x, 0, torch.tensor([0]), torch.tensor(4.0), alpha=3)
    check(aten.index_copy.default, x, 0, torch.tensor([0]), torch.tensor(4.0))


def test_masked_scatter_broadcasts() -> None:
    check(aten.masked_scatter.default, X, MASK[:, :, None], torch.randn(70))
    check(aten.masked_scatter.default, X, torch.zeros(1, dtype=torch.bool), torch.randn(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "name",
    [
        "index_put",
        "index_add",
        "index_copy",
        "index_fill",
        "put",
        "scatter",
        "scatter_add",
        "masked_scatter",
    ],
)
def test_samples(name: str, dtype: torch.dtype) -> None:
    assert check_samples(name, dtype, limit=6)


@pytest.mark.parametrize("variant", ["amax", "amin", "mean", "prod"])
@pytest.mark.parametrize("name", ["index_reduce", "scatter_reduce"])
def test_samples_of_reductions(name: str, variant: str) -> None:
    assert check_samples(name, torch.float32, variant=variant, limit=6)


@pytest.mark.parametrize("sizes", [[60], [7, 20], [3, 4, 5], [200]])
@pytest.mark.parametrize("mask", [MASK[:, :, None], X % 3 == 0, X < 0, X >= 0], ids=repr)
def test_masked_scatter_backward(mask: torch.Tensor, sizes: list[int]) -> None:
    if mask.expand_as(X).sum() <= torch.Size(sizes).numel():
        check(aten.masked_scatter_backward.default, X, mask, sizes)
