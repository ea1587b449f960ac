"""Where a trace without barriers ends: at whole passes of a loop, not within ordinary steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn

from tests.like_eager.lazy import XLA
from xla_dynamo.compat.recording import pending, trace
from xla_dynamo.compat.recording.trace_bounds import period


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("setup" + 5 * "step", 4),
        ("setup" + 5 * "step" + "st", 4),
        (9 * "ab" + "c", None),
        ("layer" * 3 + "back" * 3, None),
        ("", None),
        ("aaaa", 1),
        ("abcabc", None),
    ],
)
def test_period(items: str, expected: int | None) -> None:
    assert period(items) == expected


class Deep(nn.Module):
    """Layers of one kind, with a loss."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def _deep_step(x: Tensor) -> None:
    module = Deep(40).to(XLA)
    optimizer = torch.optim.AdamW(module.parameters())
    module(x).sum().backward()
    optimizer.step()


def _accumulation(x: Tensor) -> None:
    module = Deep(2).to(XLA)
    for _ in range(12):
        module(x).sum().backward()


def _evaluation(x: Tensor) -> None:
    module = Deep(2).to(XLA)
    with torch.no_grad():
        for _ in range(40):
            x = x + module(x) * 0.1


def _training(x: Tensor) -> None:
    module = Deep(2).to(XLA)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("run", "cut"),
    [(_deep_step, False), (_accumulation, False), (_evaluation, True), (_training, True)],
)
def test_loops_of_steps_are_cut_and_steps_are_not(
    run: Callable[[Tensor], None], cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(trace, "FIRST_LOOK", 64)
    monkeypatch.setattr(trace.policy, "when_full", lambda full: (ends.append(1), full.clear()))
    x = torch.ones(2, 3).to(XLA)
    xm.mark_step()
    run(x)
    pending.forget()
    assert bool(ends) is cut
