"""Training loops as scripts write them, on the CPU or on an xla device, and what they launch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn

import xla_dynamo
from tests.like_eager.lazy import XLA
from xla_dynamo.compat.recording import metrics

Batch = tuple[Tensor, ...]
# The gradients are there: what to do with them.
Update = Callable[[nn.Module, torch.optim.Optimizer], object]


@dataclass
class Counts:
    """What happened inside a block: programs compiled, and launched."""

    compiles: int = 0
    launches: int = 0


@contextmanager
def counting() -> Iterator[Counts]:
    """Count compiles and launches of the block."""
    counts = Counts()
    compiled, launched = len(xla_dynamo.compiles()), _launches()
    yield counts
    counts.compiles = len(xla_dynamo.compiles()) - compiled
    counts.launches = _launches() - launched


def _launches() -> int:
    return metrics.counters["ExecuteComputation"]


def barrier(device: torch.device) -> None:
    if device.type == "xla":
        xm.mark_step()


@dataclass
class Run:
    """Per step: loss and counts; at the end, the state of the module on the CPU."""

    losses: list[float]
    steps: list[Counts]
    state: dict[str, Tensor]

    @property
    def compiles(self) -> int:
        return sum(step.compiles for step in self.steps)


def train(
    module: nn.Module,
    batches: list[Batch],
    device: torch.device,
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
    scheduler: Callable[[torch.optim.Optimizer], object] | None = None,
    update: Update = lambda module, optimizer: optimizer.step(),
) -> Run:
    """One step for each batch; `module(*batch)` is the loss. The caller's module is not changed."""
    module = copy.deepcopy(module).to(device)
    batches = [tuple(t.to(device) for t in batch) for batch in batches]
    updater = optimizer(module.parameters())
    schedule = scheduler(updater) if scheduler else None
    barrier(device)
    losses, steps = [], []
    for batch in batches:
        with counting() as counts:
            updater.zero_grad()
            loss = module(*batch)
            loss.backward()
            update(module, updater)
            barrier(device)
        if schedule is not None:
            schedule.step()  # type: ignore[attr-defined]
        losses.append(loss.detach())
        steps.append(counts)
    state = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    return Run([loss.item() for loss in losses], steps, state)


def assert_trains_alike(
    module: nn.Module,
    batches: list[Batch],
    *rest: object,
    compiles: int = 2,
    tolerance: float = 1e-12,
    **options: object,
) -> Run:
    """Losses and parameters are the CPU's; one launch a step; at most `compiles` programs."""
    expected = train(module, batches, torch.device("cpu"), *rest, **options)  # type: ignore[arg-type]
    actual = train(module, batches, XLA, *rest, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(actual.losses, expected.losses, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(actual.state, expected.state, rtol=tolerance, atol=tolerance)
    assert all(step.launches == 1 for step in actual.steps)
    assert all(step.compiles == 0 for step in actual.steps[2:])
    assert actual.compiles <= compiles
    return actual
