"""Resizing, nearest to cubic, and its gradients against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, run
from xla_dynamo.backend.lowering.registry import Target, Unsupported, lowering_for

aten = torch.ops.aten

# Widths stay above 1 when shrunk: there eager (torch 2.13) repeats one row of antialiased results.
SIZES = {1: (6,), 2: (5, 6), 3: (4, 3, 2)}
NEAREST = [f"{name}{n}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in SIZES]
SMOOTH = {
    "upsample_linear1d": 1,
    "upsample_bilinear2d": 2,
    "upsample_trilinear3d": 3,
    "upsample_bicubic2d": 2,
    "_upsample_bilinear2d_aa": 2,
    "_upsample_bicubic2d_aa": 2,
}
FACTORS = [2, 1, 3, 0.5, 1.7, 0.35]


def _case(rank, factor, dtype=torch.float32):
    x = torch.randn(2, 3, *SIZES[rank]).to(dtype)
    return x, [max(int(n * factor), 1) for n in SIZES[rank]]


def _chosen(by_matrix):
    """Lowers as for a CPU, or as for other devices."""

    return lowering_for(Target("tpu" if by_matrix else "cpu"))


@pytest.mark.parametrize("name", NEAREST)
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("with_scales", [True, False])
def test_nearest(name, factor, with_scales):
    rank = int(name[-2])
    x, sizes = _case(rank, factor)
    scales = (float(factor),) * rank if with_scales else ()
    op, backward = getattr(aten, name), getattr(aten, name + "_backward").default
    check(op.default, x, sizes, *scales)
    check(backward, torch.randn(2, 3, *sizes), sizes, list(x.shape), *scales)


@pytest.mark.parametrize("name", NEAREST)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 11])
def test_gradients_of_nearest_that_are_not_finite_stay_where_they_are(name, size):
    rank = int(name[-2])
    grad = torch.randn(2, 3, *(size,) * rank)
    grad.view(-1)[0], grad.view(-1)[-1] = float("nan"), float("inf")
    backward = getattr(aten, name + "_backward").default
    check(backward, grad, [size] * rank, [2, 3, *(5, 4, 6)[:rank]])


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("by_matrix", [True, False])
def test_smooth(name, factor, align_corners, by_matrix):
    rank = SMOOTH[name]
    x, sizes = _case(rank, factor)
    op, backward = getattr(aten, name).default, getattr(aten, name + "_backward").default

    with _chosen(by_matrix):
        check(op, x, sizes, align_corners)
    if by_matrix:
        check(backward, torch.randn(2, 3, *sizes), sizes, list(x.shape), align_corners)


@pytest.mark.parametrize("name", SMOOTH)
def test_scale_factors(name):
    rank = SMOOTH[name]
    x, sizes = _case(rank, 1.7)
    op, backward = getattr(aten, name), getattr(aten, name + "_backward").default
    check(op.default, x, sizes, False, *(1.7,) * rank)
    check(backward, torch.randn(2, 3, *sizes), sizes, list(x.shape), False, *(1.7,) * rank)
    check(op.vec, x, None, False, [1.7] * rank)
    check(op.vec, x, sizes, True, None)


def test_nearest_vec():
    x, sizes = _case(2, 1.7)
    check(aten.upsample_nearest2d.vec, x, None, [1.7, 2.0])
    check(aten._upsample_nearest_exact2d.vec, x, sizes, None)


@pytest.mark.parametrize("name", ["upsample_nearest2d", *SMOOTH])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(name, dtype):
    """16-bit results are the float32 ones, rounded; eager has kernels for some of them only."""
    x, sizes = _case(int(name.removesuffix("_aa")[-2]), 2, dtype)
    settings = () if name in NEAREST else (False,)
    op, backward = getattr(aten, name).default, getattr(aten, name + "_backward").default
    backward_args = (torch.randn(2, 3, *sizes).to(dtype), sizes, list(x.shape), *settings)
    for function, args in ((op, (x, sizes, *settings)), (backward, backward_args)):
        if dtype == torch.float64:
            check(function, *args)
        else:
            exact = function(args[0].float(), *args[1:]).to(dtype)
            torch.testing.assert_close(run(function, *args), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [40, 120])
@pytest.mark.parametrize("numbers", [[], [float("inf")], [float("nan"), -float("inf")]])
def test_cubic_of_infinities(dtype, width, numbers):
    """They reach their neighbours only, in short rows as in long ones."""
    x = torch.randn(1, 2, 9, width).to(dtype)
    x[0, 1, 4, 7 : 7 + len(numbers)] = torch.tensor(numbers, dtype=dtype)
    expected = aten.upsample_bicubic2d.default(x, [13, 2 * width], False)
    assert expected.isfinite().all() == (not numbers)
    assert expected.isfinite().sum() > expected.numel() * 0.9
    check(aten.upsample_bicubic2d.default, x, [13, 2 * width], False)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("factor", [2, 1, 1.7, 0.35])
@pytest.mark.parametrize("by_matrix", [True, False])
def test_infinities(name, factor, by_matrix):
    """They reach their neighbours only, from a corner and from within."""
    x, sizes = _case(SMOOTH[name], factor)
    x.view(-1)[0] = -float("inf")
    x.view(-1)[x.numel() // 2 + 1] = float("inf")
    with _chosen(by_matrix):
        check(getattr(aten, name).default, x, sizes, False)


def test_bytes_by_nearest():
    x = torch.randint(0, 255, (1, 3, 4, 4), dtype=torch.uint8)
    check(aten.upsample_nearest2d.default, x, [8, 6])


@pytest.mark.parametrize("size", [[8, 6], [3, 4], [1, 5]])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "upsample_bilinear2d",
        "upsample_bicubic2d",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
    ],
)
def test_bytes_in_fixed_point(name, align_corners, size):
    x = torch.randint(0, 256, (2, 3, 7, 5), dtype=torch.uint8)
    check(getattr(aten, name).default, x, size, align_corners)


def test_bytes_by_a_scale():
    x = torch.randint(0, 256, (1, 5, 6, 7), dtype=torch.uint8)
    check(aten.upsample_bilinear2d.vec, x, None, False, [1.7, 0.6])


def test_other_integers_are_refused():
    with pytest.raises(Unsupported, match="integers"):
        run(aten.upsample_linear1d.default, torch.ones(1, 3, 4, dtype=torch.uint8), [8], False)
