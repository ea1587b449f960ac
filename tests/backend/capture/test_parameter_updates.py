"""An optimizer's step that is traced once for each kind of parameter, and what is traced whole."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xla_dynamo
from xla_dynamo.backend.capture import optimizer_step, parameter_updates
from xla_dynamo.backend.capture.optimizer_step import Place


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parameters each trace of an optimizer's own code was of."""
    found: list[int] = []
    original = optimizer_step.trace

    def noted(optimizer: Any, parameters: Any, *rest: Any) -> None:
        found.append(len(parameters))
        original(optimizer, parameters, *rest)

    monkeypatch.setattr(optimizer_step, "trace", noted)
    return found


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(4))
        self.head, self.unused = nn.Linear(5, 2), nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x.T.contiguous().T).tanh()
        return (self.head(x) * self.frozen).square().mean()


def grouped(model: Model) -> list[dict[str, Any]]:
    biases = [layer.bias for layer in model.layers]
    ids = {id(p) for p in biases}
    rest = [p for p in model.parameters() if id(p) not in ids and p.requires_grad]
    return [{"params": rest}, {"params": biases, "lr": 0.05, "weight_decay": 0.3}]


def like_eager(make: Callable[[Any], Any], max_norm: float | None = None) -> None:
    torch.manual_seed(0)
    model = Model()
    other = copy.deepcopy(model)
    optimizer, theirs = make(grouped(model)), make(grouped(other))
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (optimizer, theirs)]
    step = xla_dynamo.training_step(optimizer, max_grad_norm=max_norm)(lambda x: model(x))
    x = torch.randn(5, 5)
    for _ in range(3):
        theirs.zero_grad()
        loss = other(x)
        loss.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(other.parameters(), max_norm)
        theirs.step()
        torch.testing.assert_close(step(x), loss.detach(), atol=1e-6, rtol=1e-5)
        for schedule in schedules:
            schedule.step()
    torch.testing.assert_close(model.state_dict(), other.state_dict(), atol=2e-6, rtol=2e-5)
    of_theirs, own = theirs.state_dict()["state"], optimizer.state_dict()["state"]
    own = {i: own[i] for i in of_theirs}
    torch.testing.assert_close(own, of_theirs, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda groups: torch.optim.AdamW(groups, lr=0.02),
        lambda groups: torch.optim.Adam(groups, lr=torch.tensor(0.02), amsgrad=True),
        lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
        lambda groups: torch.optim.RMSprop(groups, lr=0.01, foreach=False),
    ],
)
@pytest.mark.parametrize("max_norm", [None, 0.05])
def test_groups_of_many_parameters_are_traced_by_kind(
    make: Callable[[Any], Any], max_norm: float | None, traces: list[int]
) -> None:
    like_eager(make, max_norm)
    # Weights and biases of the layers, and of the head.
    assert traces == [1] * 4


@torch.no_grad()
def normed(optimizer: torch.optim.Optimizer, closure: object = None) -> None:
    """A step of which the norm of all gradients scales each update."""
    held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = torch.stack([p.grad.square().sum() for p in held]).sum().sqrt()
    for p in held:
        p.sub_(p.grad / norm, alpha=0.1)


class Normed(torch.optim.SGD):
    """One of a user's."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        normed(self)
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                self.state[p].setdefault("steps", torch.zeros(())).add_(1)


def test_what_couples_parameters_is_traced_whole(traces: list[int]) -> None:
    like_eager(lambda groups: Normed(groups, lr=0.1))
    assert traces
    assert 1 not in traces


def test_a_step_that_was_exchanged_is_traced_whole(
    monkeypatch: pytest.MonkeyPatch, traces: list[int]
) -> None:
    monkeypatch.setattr(torch.optim.SGD, "step", normed)
    like_eager(lambda groups: torch.optim.SGD(groups, lr=0.1))
    assert traces
    assert 1 not in traces


def test_tensors_as_hyperparameters_are_traced_whole() -> None:
    weight = nn.Parameter(torch.ones(3))
    betas = torch.tensor(0.9), torch.tensor(0.99)
    optimizer = torch.optim.Adam([weight], capturable=True, betas=betas)
    assert parameter_updates.trace(optimizer, {0: weight}, {0: weight.detach()}, {}, []) is None


def test_the_op_in_eager_is_the_optimizers_step() -> None:
    weights = [nn.Parameter(torch.linspace(-1, 1, 4)) for _ in range(2)]
    optimizers = [torch.optim.AdamW([weight]) for weight in weights]
    gradient = torch.arange(4.0)
    optimizer_step.begin(optimizers[0])
    state = {Place(0, name): value for name, value in optimizers[0].state[weights[0]].items()}
    given = {0: weights[0]}, {0: gradient}, state, [torch.tensor(1e-3, dtype=torch.float64)]
    assert parameter_updates.trace(optimizers[0], *given) is not None
    weights[1].grad = gradient
    optimizers[1].step()
    torch.testing.assert_close(weights[0], weights[1])
    torch.testing.assert_close(optimizers[0].state_dict(), optimizers[1].state_dict())
