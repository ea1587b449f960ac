"""A kernel that is compiled for Mosaic: what its op is lowered to, and where nothing runs it."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import rules  # noqa: F401  (fills RULES)
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import Refusal, Target
from xla_dynamo.backend.ops import tpu_calls
from xla_dynamo.errors import NotAvailable

OP = torch.ops.xla_dynamo.tpu_custom_call.default


def lowered(payload: str, results: str, target: Target) -> Body | Refusal:
    x = torch.ones(8, 128)
    module = traced(lambda x: OP([x, x], payload, results), x)
    return body_of(fx.calls(module.graph)[0], target)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "text"),
    [
        ([(2, 3), ()], [torch.bfloat16, torch.int32], "bfloat16[2,3];int32[]"),
        ([torch.Size([4])], [torch.float8_e5m2], "float8_e5m2[4]"),
    ],
)
def test_results_are_a_text(shapes: list, dtypes: list, text: str) -> None:
    assert tpu_calls.as_text(shapes, dtypes) == text
    assert tpu_calls.of_text(text) == [(tuple(s), d) for s, d in zip(shapes, dtypes, strict=True)]


@pytest.mark.parametrize(
    ("results", "types"),
    [
        ("float32[8,128]", "-> tensor<8x128xf32>"),
        ("float32[8,128];int32[]", "-> (tensor<8x128xf32>, tensor<i32>)"),
    ],
)
def test_it_is_a_call_with_the_payload(results: str, types: str) -> None:
    body = lowered("the kernel", results, Target("tpu"))
    assert isinstance(body, Body)
    (call,) = (line for line in body.text.splitlines() if "@tpu_custom_call" in line)
    assert 'backend_config = "the kernel"' in call
    assert types in call


def test_nothing_else_runs_it() -> None:
    refusal = lowered("", "float32[8,128]", Target("cpu"))
    assert isinstance(refusal, Refusal)
    assert "for a TPU's compiler" in refusal.reason
    assert "Run it on a TPU" in refusal.remedy
    with pytest.raises(NotAvailable, match=r"for a TPU's compiler.* Run it on a TPU"):
        OP([torch.ones(8, 128)], "", "float32[8,128]")
