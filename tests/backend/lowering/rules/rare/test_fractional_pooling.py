"""Fractional max pooling, against eager with the same samples."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_samples, run

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [2, 3])
def test_samples(rank: int, dtype: torch.dtype) -> None:
    assert check_samples(f"nn.functional.fractional_max_pool{rank}d", dtype, limit=10_000, every=11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_windows_and_gradients(rank: int, batch: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(*batch, *[13, 9, 8][:rank], dtype=dtype)
    samples = torch.rand(*([1, 3] if len(batch) == 1 else batch), rank, dtype=dtype)
    kernel, out = [2, 3, 1][:rank], [5, 6, 1][:rank]
    forward = getattr(aten, f"fractional_max_pool{rank}d").default
    check(forward, x, kernel, out, samples)
    values, indices = forward(x, kernel, out, samples)
    backward = getattr(aten, f"fractional_max_pool{rank}d_backward").default
    wide = torch.randn_like(values).double()
    got = run(backward, wide, x.double(), kernel, out, indices)
    torch.testing.assert_close(got, backward(wide, x.double(), kernel, out, indices))


def test_ties_and_what_is_no_number() -> None:
    x = torch.tensor([[[NAN, 1, NAN, 1], [1, 2, -INF, -INF], [2, 2, -INF, -INF], [0, 0, 0, INF]]])
    for sample in ([0.0, 0.0], [0.9, 0.3], [0.5, 0.99]):
        op = aten.fractional_max_pool2d.default
        check(op, x, [2, 2], [3, 3], torch.tensor([[sample]]))
        check(op, x, [2, 2], [1, 2], torch.tensor([[sample]]))
