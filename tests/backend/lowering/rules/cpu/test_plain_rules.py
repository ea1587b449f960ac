"""Ops that have a form on the CPU: their plain rules, for other platforms, give eager's numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.like_eager.rules import check, run
from xla_dynamo.backend.lowering.registry import Target, lowering_for

aten = torch.ops.aten


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


IMAGE, PAIR = _x(2, 3, 6, 6), [2, 2]
POOLED, PLACES = aten.max_pool2d_with_indices.default(IMAGE, PAIR)
CONVOLUTION = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
DEPTHWISE = ([1, 1], [1, 1], [1, 1], False, [0, 0], 3)
QUERY, KEY, VALUE = _x(2, 4, 9, 2), _x(2, 2, 9, 2).repeat(1, 2, 1, 1), _x(2, 4, 9, 2)
ATTENDED = aten._scaled_dot_product_flash_attention_for_cpu.default(QUERY, KEY, VALUE)
ROWS, COLUMNS = torch.tensor([0, 1, 1]), torch.tensor([2, -1, 0])

CALLS: dict[str, tuple[Any, ...]] = {
    "attention": (
        *(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, _x(2, 4, 9, 2)),
        *(QUERY, KEY, VALUE, *ATTENDED, 0.0, False),
    ),
    "average pooling": (aten.avg_pool2d.default, IMAGE, [3, 3], PAIR, [1, 1]),
    "average pooling's gradient": (
        *(aten.avg_pool2d_backward.default, _x(2, 3, 3, 3), IMAGE),
        *([3, 3], PAIR, [1, 1], False, True, None),
    ),
    "batch norm": (
        *(aten._native_batch_norm_legit_functional.default, IMAGE, None, None),
        *(torch.zeros(3), torch.ones(3), True, 0.1, 1e-5),
    ),
    "convolution": (aten.convolution.default, IMAGE, _x(5, 3, 3, 3), None, *CONVOLUTION),
    "convolution's gradients": (
        *(aten.convolution_backward.default, _x(2, 3, 6, 6), IMAGE, _x(3, 1, 3, 3), [3]),
        *(*DEPTHWISE, [True] * 3),
    ),
    "depthwise convolution": (aten.convolution.default, IMAGE, _x(3, 1, 3, 3), None, *DEPTHWISE),
    "index": (aten.index.Tensor, IMAGE, [ROWS, None, COLUMNS]),
    "index of neighbours": (aten.index.Tensor, IMAGE, [ROWS, COLUMNS]),
    "index_put": (aten.index_put.default, IMAGE, [ROWS, COLUMNS], _x(3, 6, 6), True),
    "max pooling": (aten.max_pool2d_with_indices.default, IMAGE, [3, 3], PAIR, [1, 1]),
    "max pooling's gradient": (
        *(aten.max_pool2d_with_indices_backward.default, POOLED, IMAGE, PAIR, PAIR),
        *([0, 0], [1, 1], False, PLACES),
    ),
    "mean": (aten.mean.dim, IMAGE, [1, 2]),
    "relu": (aten.relu.default, IMAGE),
    "resizing": (aten.upsample_bilinear2d.default, IMAGE, [5, 9], False),
    "running log-sum-exp": (aten.logcumsumexp.default, IMAGE, 1),
    "running maximum": (aten.cummax.default, _x(9, 7), 1),
    "running minimum": (aten.cummin.default, _x(2, 7), 1),
    "topk": (aten.topk.default, _x(3, 40), 5),
    "topk of float64": (aten.topk.default, _x(3, 40).double(), 5, -1, False),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_platforms_compute_what_eager_does(name: str) -> None:
    with lowering_for(Target("tpu")):
        check(*CALLS[name])


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_a_materialized_tensor_is_itself(platform: str) -> None:
    with lowering_for(Target(platform)):
        assert run(torch.ops.xla_dynamo.materialize.default, IMAGE).equal(IMAGE)
