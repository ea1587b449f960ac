"""im2col and col2im against eager."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.patches  # noqa: F401
from tests.like_eager.rules import check

aten = torch.ops.aten

# (sizes, kernel, dilation, padding, stride)
CASES = [
    ([6, 7], [3, 2], [1, 1], [0, 0], [1, 1]),
    ([6, 7], [3, 3], [1, 2], [1, 2], [2, 1]),
    ([8, 8], [4, 4], [1, 1], [0, 0], [4, 4]),
    ([5, 5], [2, 2], [2, 2], [1, 0], [3, 2]),
]


@pytest.mark.parametrize(("sizes", "kernel", "dilation", "padding", "stride"), CASES)
@pytest.mark.parametrize("lead", [(2, 3), (3,), (0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_there_and_back(sizes, kernel, dilation, padding, stride, lead, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-4, 5, (*lead, *sizes), generator=generator).to(dtype)
    settings = (kernel, dilation, padding, stride)
    check(aten.im2col.default, x, *settings)
    columns = aten.im2col.default(x, *settings)
    check(aten.col2im.default, columns, sizes, *settings)
