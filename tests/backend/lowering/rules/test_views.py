"""Shapes, slices, strides and constant tensors, against eager."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, check_samples, run

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)
END = 2**63 - 1


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, END, 1), (None, None, 1), (1, -1, 1), (-2, END, 1), (0, END, 2), (1, 4, 3), (3, 1, 1)],
)
@pytest.mark.parametrize("dim", [1, -1])
def test_slices(dim: int, start: int | None, end: int | None, step: int) -> None:
    part = aten.slice.Tensor(X, dim, start, end, step)
    check(aten.slice.Tensor, X, dim, start, end, step)
    check(aten.slice_scatter.default, X, -part - 1, dim, start, end, step)
    if start is not None and end is not None:
        check(aten.slice_backward.default, part, X.shape, dim, start, end, step)


@pytest.mark.parametrize("index", [0, 2, -1])
def test_select(index: int) -> None:
    check(aten.select.int, X, -2, index)
    check(aten.select_scatter.default, X, -X[:, 0], 1, index)
    check(aten.select_backward.default, X[:, 0], X.shape, 1, index)


@pytest.mark.parametrize("offset", [0, 1, -2, 4, -3, 9])
def test_diagonals(offset: int) -> None:
    source = X.diagonal(offset, 0, 2)
    check(aten.diagonal.default, X, offset, 0, 2)
    check(aten.diagonal_copy.default, X, offset, -1, 1)
    check(aten.diagonal_scatter.default, X, -source - 1, offset, 0, 2)
    check(aten.diag_embed.default, X[0], offset)
    check(aten.diag_embed.default, X[0], offset, 0, 2)
    check(aten.tril.default, X, offset)
    check(aten.triu.default, X, offset)
    check(aten.tril_indices.default, 4, 3, offset)
    check(aten.triu_indices.default, 3, 5, offset)


@pytest.mark.parametrize(("size", "step"), [(2, 1), (3, 2), (2, 2), (1, 3), (4, 1), (5, 1)])
def test_windows(size: int, step: int) -> None:
    windows = X.unfold(2, size, step)
    check(aten.unfold.default, X, 2, size, step)
    check(aten.unfold_backward.default, windows.contiguous(), X.shape, 2, size, step)
    if size < 5:
        check(aten.unfold.default, X, -2, size, step)


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((3, 4, 5), (20, 5, 1), 0),
        ((2, 3), (3, 1), 7),
        ((5, 3), (1, 5), 2),
        ((3, 2), (20, 5), 3),
        ((2, 3, 4), (20, 0, 1), 1),
        ((4,), (3,), 50),
        ((3, 4), (1, 1), 0),
        ((5, 6), (2, 7), 1),
        ((1, 1), (9, 9), 59),
        ((), (), 4),
        ((0, 2), (2, 1), 0),
    ],
)
def test_strides(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
    check(aten.as_strided.default, X, size, stride, offset)
    if 0 not in stride and stride not in ((1, 1), (2, 7)):
        source = torch.randn(size)
        check(aten.as_strided_scatter.default, X, source, size, stride, offset)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.view.default, ([2, -1, 3],)),
        (aten.view.default, ([-1],)),
        (aten.expand.default, ([2, 3, -1, 5],)),
        (aten.permute.default, ([-1, 0, 1],)),
        (aten.transpose.int, (-1, 0)),
        (aten.squeeze.default, ()),
        (aten.squeeze.dims, ([0, -1],)),
        (aten.squeeze.dim, (0,)),
        (aten.unsqueeze.default, (-1,)),
        (aten.repeat.default, ([2, 1, 3, 1],)),
        (aten.repeat.default, ([0, 1, 1],)),
        (aten.repeat_interleave.self_int, (3, -1)),
        (aten.flip.default, ([0, -1],)),
        (aten.roll.default, ([7],)),
        (aten.roll.default, ([1, -2], [0, -1])),
        (aten.rot90.default, (3, [0, 2])),
        (aten.unbind.int, (-2,)),
        (aten.split.Tensor, (2, -1)),
        (aten.split_with_sizes.default, ([1, 0, 3], 1)),
    ],
)
def test_shapes(op: Any, args: tuple[Any, ...]) -> None:
    check(op, X[:, :, :1].expand(3, 4, 1) if "squeeze" in str(op) else X, *args)


def test_shapes_of_scalars_and_nothing() -> None:
    scalar = torch.tensor(3.0)
    check(aten.view.default, scalar, [1, 1])
    check(aten.expand.default, scalar, [2, 3])
    check(aten.squeeze.dim, scalar, -1)
    check(aten.transpose.int, scalar, 0, -1)
    check(aten.flip.default, scalar, [0])
    check(aten.view.default, torch.zeros(0, 3), [3, -1])
    check(aten.unfold.default, scalar, 0, 1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize(
    "target", [torch.int8, torch.int16, torch.int32, torch.float64, torch.complex64]
)
def test_view_as_another_dtype(dtype: torch.dtype, target: torch.dtype) -> None:
    check(aten.view.dtype, torch.arange(16).reshape(2, 8).to(dtype), target)


def test_view_of_complex_and_bool() -> None:
    check(aten.view.dtype, torch.randn(3, dtype=torch.complex64), torch.float32)
    check(aten.view.dtype, torch.randn(3, 4), torch.complex64)
    check(aten.view.dtype, torch.tensor([True, False]), torch.uint8)
    check(aten.view.dtype, torch.tensor(2.5), torch.int32)
    check(aten.view.dtype, torch.empty(2, 0, dtype=torch.float64), torch.int64)
    check(aten.view.dtype, torch.empty(0, 4), torch.complex64)
    check(aten.view.dtype, torch.empty(0, 4), torch.bool)


def test_concatenation() -> None:
    check(aten.cat.default, [X, X.int()[:1], torch.zeros(0)])
    check(aten.cat.default, [X[..., :0], X.double()], -1)
    check(aten.cat.default, [torch.zeros(0), torch.zeros(0)])
    check(aten.stack.default, [X, X + 1], -1)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
)
def test_conversions(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 0.4, 1.0, 2.7, 100.0])
    check(aten._to_copy.default, x, dtype=dtype)
    check(aten._to_copy.default, x.to(dtype), dtype=torch.float32)
    check(aten.copy.default, x.to(dtype), torch.tensor([3]))


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16]
)
def test_floats_out_of_range_wrap(source: torch.dtype, dtype: torch.dtype) -> None:
    """-1.0 is 255 in uint8; what is no integer of 32 or 64 bits is the least of them."""
    numbers = [-4.3, -0.5, 255.9, 256, -300, 300, 70000, 2**31, -(2**31), 2**32 + 257, 1e10, -1e10]
    numbers += [2.0**62, 2.0**63, -(2.0**63), 1e19, math.nan, math.inf, -math.inf]
    x = torch.tensor(numbers, dtype=torch.float64).to(source)
    check(aten._to_copy.default, x, dtype=dtype)
    check(aten.copy.default, torch.zeros(len(x), dtype=dtype), x)


@pytest.mark.filterwarnings("ignore:Casting complex")
def test_complex_to_real() -> None:
    x = torch.tensor([1 + 2j, 2j])
    check(aten._to_copy.default, x, dtype=torch.float32)
    check(aten._to_copy.default, x, dtype=torch.bool)


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.int64, torch.int32, torch.bfloat16])
@pytest.mark.parametrize(
    "bounds", [(0, 10, 3), (5, -5, -2), (-1, 1, 0.1), (0.5, 4, 0.25), (3, 3, 1), (2.1, -2.9, -1.0)]
)
def test_ranges(bounds: tuple[float, ...], dtype: torch.dtype | None) -> None:
    if dtype in (None, torch.float32) or abs(bounds[2]) >= 1:
        check(aten.arange.start_step, *bounds, dtype=dtype)
    if dtype is not None:
        check(aten.linspace.default, *bounds[:2], 7, dtype=dtype)
        check(aten.linspace.default, *bounds[:2], 1, dtype=dtype)


def test_constants() -> None:
    check(aten.full.default, [2, 3], 2)
    check(aten.full.default, [2], True)
    check(aten.full.default, [], 2.5)
    check(aten.full.default, [2], 1 + 2j)
    check(aten.full.default, [2], 300, dtype=torch.int16)
    check(aten.full_like.default, X, 3, dtype=torch.int32)
    check(aten.new_full.default, X.int(), [2], 3)
    check(aten.scalar_tensor.default, 3)
    check(aten.eye.m, 3, 5, dtype=torch.int64)
    check(aten.arange.default, 5)
    check(aten.logspace.default, -1, 2, 5, 2.0)
    check(aten.ones_like.default, X.bool())
    assert run(aten.empty.memory_format, [2, 3], dtype=torch.int32).eq(0).all()
    assert run(aten.new_empty_strided.default, X, [2, 3], [3, 1]).shape == (2, 3)


@pytest.mark.parametrize(
    "name",
    ["slice_scatter", "as_strided", "as_strided_scatter", "unfold_copy", "roll", "diag_embed"],
)
def test_samples(name: str) -> None:
    assert check_samples(name, torch.float32, limit=6)
