"""A whole training step as one program: numbers of eager's, one compile, errors that say why."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import xla_dynamo
from xla_dynamo.backend.executable import by_shape
from xla_dynamo.errors import OptionError


def pair(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Two equal modules."""
    made = make()
    other = make()
    other.load_state_dict(made.state_dict())
    return made, other


def eager_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, clip: float = 0
) -> Tensor:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.detach()


def assert_same(one: nn.Module, other: nn.Module) -> None:
    torch.testing.assert_close(one.state_dict(), other.state_dict(), atol=2e-6, rtol=2e-5)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


BATCH = torch.randn(5, 6), torch.randn(5, 3)


def test_steps_are_eagers_and_one_program() -> None:
    model, other = pair(perceptron)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    theirs = torch.optim.AdamW(other.parameters(), lr=0.01)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (optimizer, theirs)]

    @xla_dynamo.training_step(optimizer, max_grad_norm=0.1)
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        made = model(x)
        return F.mse_loss(made, y), {"made": made}

    xla_dynamo.reset_metrics()
    for _ in range(4):
        loss, rest = step(*BATCH)
        assert not loss.requires_grad
        assert not rest["made"].requires_grad
        torch.testing.assert_close(loss, eager_step(other, theirs, *BATCH, clip=0.1))
        for schedule in schedules:
            schedule.step()
    assert_same(model, other)
    assert [record.graph for record in xla_dynamo.compiles()][1:] == []
    assert all(p.grad is None for p in model.parameters())
    torch.testing.assert_close(optimizer.state_dict(), theirs.state_dict(), atol=1e-6, rtol=1e-5)


def test_state_that_is_loaded_and_hyperparameters_that_change() -> None:
    model, other = pair(perceptron)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    step = xla_dynamo.training_step(optimizer)(lambda x, y: F.mse_loss(model(x), y))
    saved = None
    for momentum in (0.9, 0.9, 0.5, 0.9):
        for each in (optimizer, theirs):
            each.param_groups[0]["momentum"] = momentum
        step(*BATCH)
        eager_step(other, theirs, *BATCH)
        saved = saved or copy.deepcopy(theirs.state_dict())
    assert saved is not None
    optimizer.load_state_dict(saved)
    theirs.load_state_dict(copy.deepcopy(saved))
    step(*BATCH)
    eager_step(other, theirs, *BATCH)
    assert_same(model, other)


def test_a_learning_rate_as_a_number_and_as_a_tensor() -> None:
    weight = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    step = xla_dynamo.training_step(optimizer)(lambda: weight.sum())
    at = 0.0
    for rate in (1.0, torch.tensor(0.5), torch.tensor([0.25]), 1.0):
        optimizer.param_groups[0]["lr"] = rate
        step()
        at -= float(rate)
        assert weight.tolist() == [at] * 4


def test_a_mask_of_dropout_is_that_of_its_gradient() -> None:
    weight = nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.SGD([weight], lr=1.0)

    @xla_dynamo.training_step(optimizer)
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        kept = F.dropout(x, 0.5)
        return (kept * weight).sum(), kept

    _, first = step(torch.ones(64))
    torch.testing.assert_close(weight.detach(), -first)
    _, second = step(torch.ones(64))
    torch.testing.assert_close(weight.detach(), -first - second)
    assert not torch.equal(first, second)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.gru = nn.GRU(8, 4, bidirectional=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(self.lstm(x)[0].transpose(0, 1))[0])


def test_recurrent_modules() -> None:
    model, other = pair(Tagger)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    step = xla_dynamo.training_step(optimizer)(lambda x, y: F.mse_loss(model(x), y))
    x, y = torch.randn(2, 5, 6), torch.randn(5, 2, 3)
    for _ in range(3):
        torch.testing.assert_close(step(x, y), eager_step(other, theirs, x, y))
    assert_same(model, other)


def test_a_classifier_in_half_precision() -> None:
    """Passes edit what backward adds to the graph, too: it has the loss's line."""
    model, other = pair(lambda: nn.Sequential(nn.Embedding(20, 16), nn.LayerNorm(16)))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, other)]
    tokens, labels = torch.arange(12) % 7, torch.arange(12) % 5

    def loss(model: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(tokens) @ model[0].weight.T  # type: ignore[index]
        return F.cross_entropy(scores.float(), labels)

    step = xla_dynamo.training_step(optimizers[0])(lambda: loss(model))
    for _ in range(2):
        optimizers[1].zero_grad()
        loss(other).backward()
        optimizers[1].step()
        step()
    torch.testing.assert_close(model.state_dict(), other.state_dict(), atol=2e-2, rtol=0)
    assert xla_dynamo.compiles()[-1].location.startswith(__file__)


def test_batches_of_other_sizes() -> None:
    model, other = pair(lambda: nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    theirs = torch.optim.SGD(other.parameters(), lr=0.1)
    step = xla_dynamo.training_step(optimizer)(lambda x, y: F.mse_loss(model(x), y))
    for rows in (5, 4, 5, 3):
        x, y = (part[:rows] for part in BATCH)
        step(x, y)
        eager_step(other, theirs, x, y)
    assert_same(model, other)


class Signs(torch.optim.Optimizer):
    """Somebody's optimizer, which makes its state in its first step."""

    def __init__(self, parameters: object, rate: float) -> None:
        super().__init__(parameters, {"rate": rate})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 0.3)
                p.sub_(mean.sign(), alpha=group["rate"])


def test_an_optimizer_of_other_origin_and_parameters_it_does_not_have() -> None:
    model, other = pair(perceptron)
    optimizer = Signs(list(model.parameters())[-2:], 0.01)
    theirs = Signs(list(other.parameters())[-2:], 0.01)
    step = xla_dynamo.training_step(optimizer)(lambda x, y: F.mse_loss(model(x), y))
    for _ in range(3):
        step(*BATCH)
        eager_step(other, theirs, *BATCH)
    assert_same(model, other)


class Counting(Signs):
    """One that counts with a number of Python."""

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        for p in self.param_groups[0]["params"]:
            self.state[p]["count"] = self.state[p].get("count", 0) + 1


def test_what_is_no_step_is_refused() -> None:
    model = nn.Linear(6, 3)
    with pytest.raises(OptionError, match="LBFGS evaluates the loss several times"):
        xla_dynamo.training_step(torch.optim.LBFGS(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    aside = nn.Linear(6, 3)
    step = xla_dynamo.training_step(optimizer)(lambda x: aside(x).sum())
    with pytest.raises(OptionError, match="has to return its loss"):
        step(BATCH[0])
    good = xla_dynamo.training_step(optimizer)(lambda x: model(x).sum())
    good(BATCH[0])
    model.weight = nn.Parameter(torch.zeros(3, 6))
    with pytest.raises(OptionError, match="was replaced after the optimizer was made"):
        good(BATCH[0])
    counting = xla_dynamo.training_step(Counting([model.bias], 0.1))(lambda x: model(x).sum())
    counting(BATCH[0])  # in eager: it makes the state
    with pytest.raises(OptionError, match=r"counts in its state \('count'\)"):
        counting(BATCH[0])
    optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(OptionError, match="has hooks"):
        xla_dynamo.training_step(optimizer)


@pytest.fixture
def symbols(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sizes that change, of each graph that is compiled."""
    found: list[Any] = []
    original = by_shape.find_symbols

    def noted(graph: torch.fx.Graph) -> Any:
        symbols = original(graph)
        found.append(symbols.sources)
        return symbols

    monkeypatch.setattr(by_shape, "find_symbols", noted)
    return found


def _mean_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: model(x).mean()


def _square_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: model(x).square().mean()


def test_no_size_changes_where_another_step_had_other_sizes(symbols: list[Any]) -> None:
    for of, rows in ((_mean_of, 5), (_square_of, 7)):
        model = nn.Linear(6, 3)
        step = xla_dynamo.training_step(torch.optim.AdamW(model.parameters()))(of(model))
        step(torch.randn(rows, 6))
    assert symbols == [(), ()]
    step(torch.randn(9, 6))
    assert len(symbols[-1]) == 1
