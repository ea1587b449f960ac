"""Views of narrow tensors in place of wide ones: where they move, and that values stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from tests.backend.graphs import ops, traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.lowering.casts_beside_views import view_narrow_tensors

BF16 = torch.bfloat16


def rewritten(
    function: Callable[[Tensor], Tensor], x: Tensor, platform: str = "tpu"
) -> tuple[bool, list[str]]:
    """Whether the pass changed the graph of a function, and the names of its ops after it."""
    module = traced(function, x)
    context = Context("test", WayIn.COMPILE, Target(platform))
    changed = view_narrow_tensors(module.graph, context)
    (result,) = GraphModule(module, module.graph)(x)
    torch.testing.assert_close(result, function(x), rtol=0, atol=0)
    value = fx.results(module.graph)[0].meta["val"]
    assert (value.shape, value.dtype) == (result.shape, result.dtype)
    return changed, [name.partition(".")[0] for name in ops(module.graph)]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x.float().view(-1, 4).sin(), ["view", "_to_copy", "sin"]),
        (lambda x: x.float().view(-1, 4).t().sin(), ["view", "t", "_to_copy", "sin"]),
        (lambda x: x.float()[:, 1:].sin(), ["slice", "_to_copy", "sin"]),
    ],
)
def test_widening_casts_come_after_views(
    function: Callable[[Tensor], Tensor], names: list[str]
) -> None:
    assert rewritten(function, torch.randn(2, 3, 4).to(BF16)) == (True, names)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x.sin().view(-1, 4).to(BF16), ["sin", "_to_copy", "view"]),
        (lambda x: x.sin().view(-1, 4).t().to(BF16).neg(), ["sin", "_to_copy", "view", "t", "neg"]),
    ],
)
def test_narrowing_casts_come_before_views(
    function: Callable[[Tensor], Tensor], names: list[str]
) -> None:
    assert rewritten(function, torch.randn(2, 3, 4)) == (True, names)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.view(-1, 4).float().sin(), torch.ones(2, 3, 4, dtype=BF16)),
        (lambda x: x.sin()[:, 1:].to(BF16), torch.ones(2, 3, 4)),  # a cast of less
        (lambda x: x.sin().view(-1).long(), torch.ones(2, 3)),
        (lambda x: (y := x.sin().view(-1)).to(BF16) + y, torch.ones(2, 3)),
    ],
)
def test_others_stay(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    assert not rewritten(function, x)[0]


@pytest.mark.parametrize("lined", ["_to_copy", "view"])
def test_the_users_line_stays_on_both(lined: str) -> None:
    """Ops of backward that autograd makes have none."""
    module = traced(lambda x: x.sin().view(-1, 4).to(BF16), torch.randn(2, 3, 4))
    for node in fx.calls(module.graph):
        node.meta.pop("stack_trace", None)
        if lined in str(node.target):
            node.meta["stack_trace"] = "line 1"
    assert view_narrow_tensors(module.graph, Context("test", WayIn.COMPILE, Target("tpu")))
    assert [node.meta.get("stack_trace") for node in fx.calls(module.graph)[1:]] == ["line 1"] * 2


def test_programs_for_the_cpu_stay() -> None:
    assert not rewritten(lambda x: x.float().view(-1), torch.ones(2, 3, dtype=BF16), "cpu")[0]
