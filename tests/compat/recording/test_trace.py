"""A training step is one program, launched once a step, and two compiles at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedulers

from tests.compat.loops import assert_trains_alike, train
from tests.like_eager.lazy import XLA
from tests.models.attention import Gpt
from tests.models.zoo import ZOO

optim = torch.optim
Optimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


class Net(nn.Module):
    """A small network with every kind of state; forward gives the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Linear(4, 8, bias=False),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Linear(8, 6),
            nn.LayerNorm(6),
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), target)


def batches(steps: int, rows: int = 16) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(rows, 4, dtype=torch.float64, generator=generator),
            torch.randint(0, 6, (rows,), generator=generator),
        )
        for _ in range(steps)
    ]


def sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return optim.SGD(parameters, lr=0.1, momentum=0.9)


OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": sgd,
    "SGD nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "SGD plain": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "Adam plain": lambda p: optim.Adam(p, lr=0.1, foreach=False),
    "Adam amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "Adam lr tensor": lambda p: optim.Adam(p, lr=torch.tensor(0.1), foreach=False),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "AdamW plain": lambda p: optim.AdamW(p, lr=0.1, foreach=False),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: optim.Adadelta(p),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
    "RMSprop centered": lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9),
    "Rprop": lambda p: optim.Rprop(p, lr=0.01),
}
# Rectified Adam takes another formula once its fifth step has come.
COMPILES = {"RAdam": 3}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    assert_trains_alike(
        Net().double(), batches(7), OPTIMIZERS[name], compiles=COMPILES.get(name, 2)
    )


def test_capturable_optimizers_count_steps_on_the_device() -> None:
    def adam(capturable: bool) -> Optimizer:
        return lambda p: optim.Adam(p, lr=0.1, capturable=capturable)

    run = train(Net().double(), batches(6), XLA, adam(True))
    expected = train(Net().double(), batches(6), torch.device("cpu"), adam(False))
    assert run.compiles <= 2
    # The count is a float32 tensor, and so are the bias corrections made of it.
    torch.testing.assert_close(run.losses, expected.losses, rtol=1e-5, atol=1e-5)


def test_an_optimizer_that_reads_its_step_count() -> None:
    def asgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        return optim.ASGD(parameters, lr=0.1, foreach=True)

    run = train(Net().double(), batches(6), XLA, asgd)
    expected = train(Net().double(), batches(6), torch.device("cpu"), asgd)
    assert all(step.compiles == 0 for step in run.steps[2:])
    torch.testing.assert_close(run.losses, expected.losses, rtol=1e-12, atol=1e-12)


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "StepLR": lambda o: schedulers.StepLR(o, 2, 0.5),
    "warm-up from 0": lambda o: schedulers.LambdaLR(o, lambda step: step / 3),
    "constant, 0 and 1": lambda o: schedulers.LambdaLR(o, lambda step: [10, 0, 1, 5][step % 4]),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.2, total_steps=8),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 4),
    "warm-up then cosine": lambda o: schedulers.SequentialLR(
        o,
        [schedulers.LinearLR(o, 0.1, total_iters=2), schedulers.CosineAnnealingLR(o, 5)],
        milestones=[2],
    ),
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
}


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules(schedule: str, optimizer: str) -> None:
    assert_trains_alike(Net().double(), batches(7), OPTIMIZERS[optimizer], SCHEDULES[schedule])


def clip(foreach: bool) -> Callable[[nn.Module, torch.optim.Optimizer], None]:
    def update(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        nn.utils.clip_grad_norm_(module.parameters(), 0.5, foreach=foreach)
        optimizer.step()

    return update


def clip_by_hand(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """What scripts of 2019 did, before clip_grad_norm_ was free of `if`s on values."""
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).norm()
    factor = (0.5 / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)
    optimizer.step()


def clip_values(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_value_(module.parameters(), 0.05)
    optimizer.step()


@pytest.mark.parametrize("update", [clip(True), clip(False), clip_by_hand, clip_values])
def test_gradient_clipping(update: Any) -> None:
    assert_trains_alike(Net().double(), batches(5), sgd, update=update)


def test_gradient_clipping_of_one_bad_step() -> None:
    """Clipping applies in some steps only: no other program for those."""
    data = batches(5)
    data[3] = (data[3][0] * 1e3, data[3][1])
    assert_trains_alike(Net().double(), data, sgd, update=clip(True))


def test_the_convnet_with_dropout_and_batch_norm() -> None:
    model = ZOO["mnist"]
    batch = model.batch()
    run = train(model.build(0.5), [batch] * 6, XLA, lambda p: optim.SGD(p, 0.01, momentum=0.9))
    assert [step.launches for step in run.steps] == [1] * 6
    assert run.compiles <= 2
    assert len(set(run.losses)) == 6


class TiedGpt(Gpt):
    """Moving a module to an xla device makes new parameters, as with torch_xla: tie them again."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self.head.weight = self.tokens.weight
        return self


@pytest.mark.parametrize("name", ["mnist", pytest.param("resnet18", marks=pytest.mark.slow), "gpt"])
def test_models_train_as_on_the_cpu(name: str) -> None:
    model = ZOO[name]
    batch = tuple(t.double() if t.is_floating_point() else t for t in model.batch())
    module = (TiedGpt(0.0) if name == "gpt" else model.build(0.0)).double().train()
    assert_trains_alike(module, [batch] * 4, lambda p: optim.SGD(p, 1e-3, momentum=0.9))
