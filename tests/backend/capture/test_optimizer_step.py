"""Optimizers of PyTorch in a program: their state begins and ends as in eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn, optim

import xla_dynamo
from xla_dynamo.errors import OptionError

KINDS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
    "SGD, Nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD, dampened": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "Adam, amsgrad": lambda p: optim.Adam(p, amsgrad=True),
    "NAdam": optim.NAdam,
    "RAdam": optim.RAdam,
    "RMSprop": lambda p: optim.RMSprop(p, momentum=0.5, centered=True),
    "Adagrad": optim.Adagrad,
    "Adadelta": optim.Adadelta,
    "Adamax": optim.Adamax,
    "ASGD": optim.ASGD,
    "Rprop": optim.Rprop,
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimizer_of_pytorch(kind: str) -> None:
    weights = [nn.Parameter(torch.linspace(-1, 2, 12).view(3, 4)) for _ in range(2)]
    optimizers = [KINDS[kind]([weight]) for weight in weights]

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return (weight.sin() @ x).square().mean()

    step = xla_dynamo.training_step(optimizers[0])(lambda x: loss(weights[0], x))
    x = torch.linspace(0.1, 1, 8).view(4, 2)
    for _ in range(3):
        optimizers[1].zero_grad()
        theirs = loss(weights[1], x)
        theirs.backward()
        optimizers[1].step()
        torch.testing.assert_close(step(x), theirs.detach())
    states = [optimizer.state_dict()["state"] for optimizer in optimizers]
    torch.testing.assert_close(states[0], states[1], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=1e-5)


def test_one_that_reads_values_is_refused() -> None:
    weight = nn.Parameter(torch.ones(4))
    step = xla_dynamo.training_step(optim.Adafactor([weight]))(lambda: weight.square().sum())
    with pytest.raises(OptionError, match="A step of Adafactor cannot be part of a program"):
        step()
