"""Reductions of segments, and their gradients, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_samples, run

aten = torch.ops.aten
REDUCTIONS = ["sum", "mean", "max", "min", "prod"]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", ["lengths", "offsets"])
def test_samples(variant: str, dtype: torch.dtype) -> None:
    assert check_samples("_segment_reduce", dtype, variant=variant, limit=10_000, every=29)


def _check(
    data: torch.Tensor, reduction: str, initial: float | None, axis: int = 0, **cuts: torch.Tensor
) -> None:
    options = {"initial": initial, "axis": axis, **cuts}
    check(aten.segment_reduce.default, data, reduction, unsafe=True, **options)
    output = aten.segment_reduce(data, reduction, unsafe=True, **options)
    backward = aten._segment_reduce_backward.default
    for grad in (torch.randn_like(output), torch.ones_like(output), -torch.ones_like(output)):
        check(backward, grad, output, data, reduction, **options)


@pytest.mark.parametrize(
    ("reduction", "dtype", "initial"),
    [*((how, torch.float64, 2.0) for how in REDUCTIONS), ("prod", torch.float32, None)],
)
def test_gradients(reduction: str, initial: float | None, dtype: torch.dtype) -> None:
    data = torch.tensor([1, 3, 3, 0, -2, 0, 0, 5, 4, -1], dtype=dtype)
    lengths = torch.tensor([3, 2, 0, 2, 1, 2])
    offsets = torch.tensor([0, 3, 5, 5, 7, 8, 10])
    _check(data, reduction, initial, lengths=lengths)
    _check(data, reduction, initial, offsets=offsets)
    _check(torch.stack([data, data.flip(0)], 1), reduction, initial, lengths=lengths)
    rows = torch.stack([data, data.flip(0)])[..., None].repeat(1, 1, 3)
    _check(rows, reduction, initial, 1, lengths=torch.stack([lengths, lengths.flip(0)]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_floats_are_rounded_once(reduction: str, dtype: torch.dtype) -> None:
    data, lengths = torch.randn(60, dtype=dtype), torch.tensor([20, 0, 40])
    got = run(aten.segment_reduce.default, data, reduction, lengths=lengths)
    want = aten.segment_reduce(data.float(), reduction, lengths=lengths)
    torch.testing.assert_close(got.to(dtype), want.to(dtype), equal_nan=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_not_a_number(reduction: str) -> None:
    data = torch.tensor([1.0, NAN, 3.0, 0.0, NAN, NAN, 2.0, INF, 0.0, -INF])
    _check(data, reduction, None, lengths=torch.tensor([3, 2, 2, 2, 1]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_elements_before_and_after_all_segments(reduction: str) -> None:
    _check(torch.randn(9), reduction, None, offsets=torch.tensor([2, 4, 4, 7]))
