"""Training with dropout: fresh masks at every step, one mask in forward and backward."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.models.training import OPTIMIZERS, build, expect_executables, train
from tests.models.zoo import ZOO

# Transformers drop in the same places: of those of transformers, one is enough for `make test`.
SLOW = {"hf_gpt2", "hf_llama", "hf_t5", "hf_vit"}
WITH_DROPOUT = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
    for name, model in ZOO.items()
    if model.dropout
]


def test_backward_multiplies_by_the_mask_of_forward() -> None:
    x = torch.ones(1000, requires_grad=True)
    dropout = torch.compile(lambda x: F.dropout(x, 0.25), backend="xla")
    with expect_executables(2):
        y = dropout(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    assert set(y.tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert 600 < int((y != 0).sum()) < 900


def test_a_seed_gives_a_mask_and_each_call_a_fresh_one() -> None:
    dropout = torch.compile(lambda x: F.dropout(x, 0.5), backend="xla")
    x = torch.ones(1000)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    again = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, again)


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_models_train_with_dropout(name: str) -> None:
    """A directional derivative in float64, by backward and by a difference of two losses.

    The same seed gives all evaluations the same masks: the loss is then a smooth function, whose
    difference quotient agrees only if backward's masks are forward's. Other masks would be off by a
    tenth and more; kinks of ReLU, and models that compute in float32, are off by 1e-4.
    """
    model = ZOO[name]
    module, batch = build(model, torch.float64, dropout=model.dropout)
    compiled = torch.compile(module, backend="xla")

    def loss(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return compiled(*batch)

    with expect_executables(2):
        parameters = list(module.parameters())
        gradients = torch.autograd.grad(loss(7), parameters)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        assert loss(7) == loss(7)
        assert loss(7) != loss(8)
        step = 1e-3
        values = []
        for sign in (+1, -2):
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.add_(gradient, alpha=sign * step / norm)
            values.append(loss(7).item())
        run = train(module, compiled, batch, OPTIMIZERS["sgd"])
    quotient = (values[0] - values[1]) / (2 * step)
    assert quotient == pytest.approx(norm, rel=1e-3)
    assert all(math.isfinite(value) for value in run.losses)
    assert len({value.item() for value in run.losses}) == 5
