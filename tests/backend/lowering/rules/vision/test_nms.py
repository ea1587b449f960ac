"""Non-maximum suppression: the rule, and torchvision's op by both doors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import xla_dynamo.compat  # noqa: F401
from tests.like_eager.compiled import fallbacks
from tests.like_eager.rules import run

from . import references

if not hasattr(torch.ops.torchvision, "nms"):
    torch.library.define(
        "torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    )
    torch.library.impl("torchvision::nms", "CPU", references.nms)

    @torch.library.register_fake("torchvision::nms")
    def _fake(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
        return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def boxes(count: int) -> tuple[Tensor, Tensor]:
    corner = 10 * torch.rand(count, 2)
    return torch.cat([corner, corner + 10 * torch.rand(count, 2)], 1), torch.randn(count)


@pytest.mark.parametrize(("count", "threshold"), [(0, 0.5), (9, 0.0), (9, 1.0), (600, 0.5)])
def test_boxes_in_one_block_and_in_several(count: int, threshold: float) -> None:
    given = boxes(count)
    kept, number = run(torch.ops.xla_dynamo.nms_padded.default, *given, threshold)
    assert torch.equal(kept[:number], references.nms(*given, threshold))


def test_equal_scores_keep_their_order_and_nan_is_the_best() -> None:
    given, scores = torch.tensor([[0.0, 0, 2, 2]]).repeat(4, 1), torch.tensor([1.0, 3, 3, 2])
    kept, number = run(torch.ops.xla_dynamo.nms_padded.default, given, scores, 0.5)
    assert kept[:number].tolist() == [1]
    scores[3] = torch.nan
    kept, number = run(torch.ops.xla_dynamo.nms_padded.default, given, scores, 0.5)
    assert kept[:number].tolist() == [3]


def test_an_overlap_is_compared_with_the_threshold_as_a_float64() -> None:
    """0.6 as a float32 is above 0.6, and the overlap of these boxes is that."""
    given = torch.tensor([[0.0, 0, 5, 1], [0, 0, 3, 1]])
    kept, number = run(torch.ops.xla_dynamo.nms_padded.default, given, torch.tensor([2.0, 1]), 0.6)
    assert kept[:number].tolist() == [0]


def test_both_doors() -> None:
    def detect(found: Tensor, scores: Tensor) -> Tensor:
        return found[torch.ops.torchvision.nms(found, scores, 0.3)] * 2

    given = boxes(30)
    want = detect(*given)
    compiled = torch.compile(detect, backend="xla", options={"fallback": "error"})
    torch.testing.assert_close(compiled(*given), want)
    torch.testing.assert_close(detect(*(x.to("xla") for x in given)).cpu(), want)
    assert fallbacks() == {}
