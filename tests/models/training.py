"""Train a model in eager PyTorch and compiled, from the same state on the same batch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import xla_dynamo
from tests.like_eager.compiled import fallbacks

from .zoo import Model

Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05),
}


@dataclass
class Run:
    """Per step: loss and gradients by name; at the end, the parameters and buffers."""

    losses: list[Tensor]
    gradients: list[dict[str, Tensor]]
    state: dict[str, Tensor]


def build(
    model: Model, dtype: torch.dtype, dropout: float = 0.0
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module in train mode and a batch, the same at every call."""
    torch.manual_seed(0)
    module = model.build(dropout).to(dtype).train()
    batch = tuple(t.to(dtype) if t.is_floating_point() else t for t in model.batch())
    return module, batch


def train(
    module: nn.Module,
    call: Callable[..., Tensor],
    batch: tuple[Tensor, ...],
    optimizer: Optimizer,
    *,
    compile_step: bool = False,
) -> Run:
    """Five steps of `call(*batch)`, whose parameters are those of `module`."""
    updater = optimizer(list(module.parameters()))
    update = torch.compile(updater.step, backend="xla") if compile_step else updater.step
    run = Run([], [], {})
    for _ in range(5):
        updater.zero_grad()
        loss = call(*batch)
        loss.backward()
        update()
        run.losses.append(loss.detach())
        gradients = {name: p.grad for name, p in module.named_parameters()}
        run.gradients.append({n: g.clone() for n, g in gradients.items() if g is not None})
    run.state = {name: value.detach().clone() for name, value in module.state_dict().items()}
    return run


def train_both(model: Model, dtype: torch.dtype, optimizer: Optimizer) -> tuple[Run, Run]:
    """The eager run and the compiled one, without dropout."""
    module, batch = build(model, dtype)
    eager = copy.deepcopy(module)
    expected = train(eager, eager, batch, optimizer)
    actual = train(module, torch.compile(module, backend="xla"), batch, optimizer)
    return expected, actual


@contextlib.contextmanager
def expect_executables(count: int) -> Iterator[None]:
    """Assert that the block makes `count` executables and that nothing in it falls back."""
    before = len(xla_dynamo.compiles())
    yield
    made = xla_dynamo.compiles()[before:]
    assert len(made) == count, "\n".join(map(str, made))
    assert fallbacks() == {}
