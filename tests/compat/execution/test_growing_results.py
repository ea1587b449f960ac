"""Loops that concatenate what they compute: right values, and no program for each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import Tensor, nn

import xla_dynamo
from tests.compat.failing import Odd, even
from tests.like_eager.lazy import XLA, assert_lockstep, assert_same
from xla_dynamo.compat.execution import automatic_barriers, growing_results
from xla_dynamo.compat.recording import trace

pytestmark = pytest.mark.usefixtures("counted_from_zero")
X = torch.arange(12.0).reshape(4, 3)


def barrier(x: Tensor) -> None:
    if x.is_xla:
        xm.mark_step()


def evaluate(module: nn.Module, x: Tensor, steps: int = 20) -> list[Tensor]:
    """The predictions and labels of a loop, and their accuracy."""
    predictions = labels = None
    with torch.no_grad():
        for step in range(steps):
            output = module(x + step).argmax(1)
            label = (x.sum(1) > step).long()
            predictions = output if predictions is None else torch.cat([predictions, output])
            labels = label if labels is None else torch.cat((labels, label), dim=0)
            barrier(x)
    assert predictions is not None
    assert labels is not None
    return [predictions, labels, (predictions == labels).double().mean()]


def test_an_evaluation_compiles_few_programs() -> None:
    torch.manual_seed(0)
    xla_dynamo.reset_metrics()
    assert_lockstep(evaluate, nn.Linear(3, 2), X)
    # Steps that join nothing, which is all but the second; that one; the accuracy.
    assert met.counter_value("UncachedCompile") == len(xla_dynamo.compiles()) == 3
    assert met.counter_value("xla::cat") is not None


USES: dict[str, Callable[[Tensor], object]] = {
    "read": lambda x: x,
    "an op": lambda x: x * 2,
    "twice": lambda x: x + x,
    "a view": lambda x: x[2:5],
    "a write": lambda x: x.add_(1),
    "a write to a part": lambda x: x[1].zero_(),
    "dimensions": lambda x: (x.shape, x.stride(), x.t().is_contiguous()),
    "one more": lambda x: torch.cat([x, x[:1]]),
    "another dimension": lambda x: torch.cat([x, x], dim=1),
    "an op that fails": lambda x: _refused(x),
}


def _refused(x: Tensor) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.mm(x, x.new_ones(1, 1))


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", USES)
def test_what_grew_is_used(name: str, dim: int) -> None:
    def loop(x: Tensor) -> list[object]:
        grown = x * 1
        for step in range(6):
            grown = torch.cat([grown, x + step], dim)
            barrier(x)
        used = USES[name](grown)
        barrier(x)
        return [grown, used if isinstance(used, Tensor | tuple) else None]

    assert_lockstep(loop, X)


def test_many_parts_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_results, "_PARTS", 4)

    def loop(x: Tensor) -> Tensor:
        grown = x[:0]
        for step in range(15):
            grown = torch.cat([grown, x[:2] * step])
            barrier(x)
        return grown

    assert_lockstep(loop, X)
    assert (met.counter_value("UncachedCompile") or 0) <= 4


def test_a_loop_without_barriers_compiles_few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "FIRST_LOOK", 96)
    monkeypatch.setattr(automatic_barriers, "NEXT_LOOK", 48)
    xm.mark_step()

    def loop(x: Tensor) -> Tensor:
        grown = x * 1
        for step in range(120):
            grown = torch.cat([grown, (x + step).sin() * 2])
        return grown

    with pytest.warns(UserWarning, match="no barrier came"):
        assert_lockstep(loop, X)
    # The beginning, a part that joins, every part after it, and the end.
    assert met.counter_value("UncachedCompile") == 4
    assert (met.counter_value("TrimIrGraph") or 0) > 5


def test_gradients() -> None:
    def loop(x: Tensor) -> Tensor:
        grown = x * 1
        for step in range(5):
            grown = torch.cat([grown, x * step])
            barrier(x)
        (grown * torch.arange(float(len(grown)), device=x.device)[:, None]).sum().backward()
        return grown.detach()

    assert_lockstep(loop, X.clone().requires_grad_())


def test_what_cannot_be_joined_is_eagers_error() -> None:
    def loop(x: Tensor) -> None:
        grown = x * 1
        for _ in range(4):
            grown = torch.cat([grown, x])
            barrier(x)
        torch.cat([grown, x[:, :2]])

    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        loop(X.to(XLA))


def test_a_part_that_failed_raises_when_the_whole_is_read() -> None:
    x = X.to(XLA)
    grown = x * 1
    for _ in range(4):
        grown = torch.cat([grown, x])
        xm.mark_step()
    grown = torch.cat([grown, even(x + torch.eye(4, 3, device=XLA))])  # the sum is odd
    with pytest.raises(Odd), pytest.warns(xla_dynamo.FallbackWarning):
        xm.mark_step()
    with pytest.raises(Odd):
        grown.cpu()
    assert_same(x, X)
