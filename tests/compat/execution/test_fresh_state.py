"""The first step of a training loop makes the optimizer's state, and runs the program of all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import nn

import xla_dynamo

ONCE: dict[str, dict[str, Any]] = {
    "AdamW": {},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "Adadelta": {},
}


def _trained(
    name: str, settings: dict[str, Any], device: Any, steps: int = 3
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).to(device)
    optimizer = getattr(torch.optim, name)(model.parameters(), **settings)
    for step in range(3):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step)).to(device)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        xm.mark_step()
    states = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    return [t.detach().cpu() for t in (*model.parameters(), *states)]


@pytest.mark.parametrize("name", ONCE)
def test_a_loop_compiles_once_and_trains_like_eager(name: str) -> None:
    want = _trained(name, ONCE[name], "cpu")
    xla_dynamo.reset_metrics()
    got = _trained(name, ONCE[name], xm.xla_device())
    assert len(xla_dynamo.compiles()) == 1
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_another_model_begins_with_zeros_again() -> None:
    device = xm.xla_device()
    first = _trained("AdamW", {}, device)
    xla_dynamo.reset_metrics()
    for a, b in zip(_trained("AdamW", {}, device), first, strict=True):
        assert a.equal(b)
    assert xla_dynamo.compiles() == []


def test_parameters_of_16_bits_with_state_of_32() -> None:
    """Zeros of another dtype than the parameter's."""

    def trained(device: Any) -> torch.Tensor:
        torch.manual_seed(0)
        p = nn.Parameter(torch.randn(8).bfloat16().to(device))
        moment = None
        for _ in range(2):
            moment = torch.zeros_like(p, dtype=torch.float32) if moment is None else moment
            moment.mul_(0.5).add_(p.detach().float())
            with torch.no_grad():
                p.sub_(moment.bfloat16())
            xm.mark_step()
        return p.detach().float().cpu()

    want = trained("cpu")
    xla_dynamo.reset_metrics()
    assert trained(xm.xla_device()).equal(want)
    assert len(xla_dynamo.compiles()) == 2  # of the steps, and of what reads the parameter


def test_zeros_that_are_no_state_stay_in_the_program() -> None:
    """They are no arguments of what makes, uses and forgets them, or returns them as they are."""
    device = xm.xla_device()
    p = torch.ones(1000, device=device)
    xm.mark_step()
    xla_dynamo.reset_metrics()
    for _ in range(2):
        p.add_(torch.zeros_like(p) + 1)
        kept = torch.zeros_like(p)
        xm.mark_step()
    [record] = xla_dynamo.compiles()
    assert record.shapes.count("float32[1000]") == 1
    assert p.sum().item() == 3000
    assert kept.sum().item() == 0
