"""What is said of float32 products on a TPU, when, and how often."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend import metrics
from xla_dynamo.backend.executable import precision_notice
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_reported", {})


def tell(
    platform: str = "tpu",
    precision: str = "highest",
    way_in: WayIn = WayIn.COMPILE,
    dtype: torch.dtype = torch.float32,
) -> list[str]:
    """What is said, twice, of a program with a product."""
    x = torch.ones(3, 3, dtype=dtype)
    context = Context("test", way_in, Target(platform, precision))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            precision_notice.tell(traced(lambda x: x @ x, x).graph, context)
    return [str(warning.message) for warning in caught]


def test_each_way_in_says_how_to_change_it() -> None:
    (text,) = tell(precision="highest")
    assert "as float32, by six products of bfloat16" in text
    assert "torch.set_float32_matmul_precision(" in text


def test_scripts_of_torch_xla_are_told_its_own_function() -> None:
    (text,) = tell(precision="medium", way_in=WayIn.LAZY)
    assert "by one product of bfloat16, the TPU's own way" in text
    assert "torch_xla.backends.set_mat_mul_precision(" in text


def test_nothing_is_said_elsewhere() -> None:
    assert tell(platform="cpu") == []
    assert tell(dtype=torch.bfloat16) == []
    context = Context("test", WayIn.COMPILE, Target("tpu"))
    precision_notice.tell(traced(torch.sin, torch.ones(3)).graph, context)
    assert len(tell()) == 1  # nothing was said of the sine
