"""What training loops do besides a step: evaluate, log, accumulate, scale; and memory."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import swa_utils

from tests.compat.loops import barrier, counting
from tests.like_eager.lazy import XLA
from xla_dynamo.compat.values.values import Value, value_of

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self, momentum: float | None = 0.1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8, momentum=momentum), nn.ReLU()
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def data(rows: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, dtype=torch.float64, generator=generator)
    return x.to(device), torch.randint(3, (rows,), generator=generator).to(device)


def setup(device: torch.device, momentum: float | None = 0.1) -> tuple[Net, torch.optim.Optimizer]:
    module = Net(momentum).double().to(device)
    return module, torch.optim.AdamW(module.parameters(), lr=0.05)


def step(
    module: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]
) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(module(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.detach()


def assert_close(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_evaluation_between_epochs_and_a_short_last_batch() -> None:
    def run(device: torch.device) -> tuple[list[float], list[int], list[int]]:
        module, optimizer = setup(device)
        losses, compiles, launches = [], [], []
        for epoch in range(4):
            with counting() as counts:
                module.train()
                for rows in (8, 8, 8, 5):
                    loss = step(module, optimizer, data(rows, epoch * 4 + rows, device))
                    barrier(device)
                module.eval()
                correct = torch.zeros((), device=device, dtype=torch.int64)
                with torch.no_grad():
                    for rows in (8, 8, 5):
                        x, target = data(rows, 100 + rows, device)
                        correct += (module(x).argmax(1) == target).sum()
                        barrier(device)
                losses.extend([loss.item(), correct.item()])
            compiles.append(counts.compiles)
            launches.append(counts.launches)
        return losses, compiles, launches

    expected, _, _ = run(CPU)
    actual, compiles, launches = run(XLA)
    assert_close(actual, expected)
    # Two for the first steps, one for the short batch, two for evaluation (with its short batch),
    # at most one more where an epoch begins after another.
    assert compiles[0] <= 6
    assert sum(compiles) <= 7
    assert compiles[2:] == [0, 0]
    assert launches == [7] * 4


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics(momentum: float | None) -> None:
    """BatchNorm(momentum=None) averages all batches: its factor changes with every step."""

    def run(device: torch.device) -> tuple[dict[str, Tensor], int]:
        module, optimizer = setup(device, momentum)
        with counting() as counts:
            for i in range(6):
                step(module, optimizer, data(8, i, device))
                barrier(device)
        return {name: value.cpu() for name, value in module.state_dict().items()}, counts.compiles

    expected, _ = run(CPU)
    actual, compiles = run(XLA)
    assert_close(actual, expected)
    assert compiles <= (2 if momentum else 8)


@pytest.mark.parametrize("every", [1, 3])
def test_logging_the_loss(every: int) -> None:
    def run(device: torch.device) -> tuple[list[float], int]:
        module, optimizer = setup(device)
        logged = []
        with counting() as counts:
            for i in range(10):
                loss = step(module, optimizer, data(8, i, device))
                if i % every == 0:
                    logged.append(loss.item())
                barrier(device)
        return logged, counts.compiles

    expected, _ = run(CPU)
    actual, compiles = run(XLA)
    assert_close(actual, expected)
    assert compiles <= 4


def test_metrics_kept_on_the_device() -> None:
    def run(device: torch.device) -> tuple[float, list[int]]:
        module, optimizer = setup(device)
        total, compiles = torch.zeros((), dtype=torch.float64, device=device), []
        for i in range(6):
            with counting() as counts:
                total += step(module, optimizer, data(8, i, device))
                barrier(device)
            compiles.append(counts.compiles)
        return total.item(), compiles

    expected, _ = run(CPU)
    actual, compiles = run(XLA)
    assert_close(actual, expected)
    assert sum(compiles) <= 2
    assert compiles[2:] == [0] * 4


@pytest.mark.parametrize("cut_each", [True, False])
def test_gradient_accumulation(cut_each: bool) -> None:
    def run(device: torch.device) -> tuple[list[Tensor], list[int]]:
        module, optimizer = setup(device)
        compiles = []
        for i in range(5):
            with counting() as counts:
                for part in range(3):
                    x, target = data(8, 10 * i + part, device)
                    (F.cross_entropy(module(x), target) / 3).backward()
                    if cut_each:
                        barrier(device)
                optimizer.step()
                optimizer.zero_grad()
                barrier(device)
            compiles.append(counts.compiles)
        return [p.detach().cpu() for p in module.parameters()], compiles

    expected, _ = run(CPU)
    actual, compiles = run(XLA)
    assert_close(actual, expected)
    assert compiles[2:] == [0] * 3


def test_loss_scaling() -> None:
    """A static scale, then a dynamic one, whose value changes and whose check reads the device."""

    def run(device: torch.device) -> tuple[list[Tensor], list[int]]:
        module, optimizer = setup(device)
        scale, compiles = 1.0, []
        for i in range(8):
            scale = scale * 2 if i % 2 else scale
            with counting() as counts:
                optimizer.zero_grad()
                x, target = data(8, i, device)
                (F.cross_entropy(module(x), target) * scale).backward()
                for p in module.parameters():
                    assert p.grad is not None
                    p.grad.div_(scale)
                optimizer.step()
                barrier(device)
            compiles.append(counts.compiles)
        return [p.detach().cpu() for p in module.parameters()], compiles

    expected, _ = run(CPU)
    actual, compiles = run(XLA)
    assert_close(actual, expected)
    assert compiles[2:] == [0] * 6


@pytest.mark.parametrize("foreach", [True, False])
def test_moving_average_of_parameters(foreach: bool) -> None:
    def run(device: torch.device) -> tuple[list[Tensor], list[int]]:
        module, optimizer = setup(device)
        average = copy.deepcopy(module).requires_grad_(False)
        compiles = []
        for i in range(6):
            with counting() as counts:
                step(module, optimizer, data(8, i, device))
                decay = min(0.99, (1 + i) / (10 + i))
                with torch.no_grad():
                    if foreach:
                        ours = list(average.parameters())
                        torch._foreach_lerp_(ours, list(module.parameters()), 1 - decay)
                    else:
                        for a, p in zip(average.parameters(), module.parameters(), strict=True):
                            a.mul_(decay).add_(p, alpha=1 - decay)
                barrier(device)
            compiles.append(counts.compiles)
        return [p.cpu() for p in average.parameters()], compiles

    expected, _ = run(CPU)
    actual, compiles = run(XLA)
    assert_close(actual, expected)
    assert compiles[2:] == [0] * 4


def test_averaged_model_of_swa_utils() -> None:
    def run(device: torch.device) -> tuple[list[Tensor], int]:
        module, optimizer = setup(device)
        average = swa_utils.AveragedModel(module, multi_avg_fn=swa_utils.get_swa_multi_avg_fn())
        with counting() as counts:
            for i in range(6):
                step(module, optimizer, data(8, i, device))
                average.update_parameters(module)
                barrier(device)
        return [p.detach().cpu() for p in average.parameters()], counts.compiles

    expected, _ = run(CPU)
    actual, compiles = run(XLA)
    assert_close(actual, expected)
    assert compiles <= 4


def test_lbfgs() -> None:
    def run(device: torch.device) -> Tensor:
        module = nn.Linear(4, 3).double().to(device)
        with torch.no_grad():
            module.weight.copy_(torch.linspace(-1, 1, 12).reshape(3, 4))
            module.bias.zero_()
        optimizer = torch.optim.LBFGS(module.parameters(), max_iter=5)
        x, target = data(8, 0, device)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(module(x), target)
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        return module.weight.detach().cpu()

    torch.testing.assert_close(run(XLA), run(CPU), rtol=1e-9, atol=1e-9)


def test_numbers_that_are_equal_stay_apart() -> None:
    """pytorch/xla#3604: two learning rates that start out equal."""
    for rates in ([0.1, 0.1], [0.1, 0.2], [0.3, 0.3], [0.0, 1.0]):
        x, y = (torch.ones(2, dtype=torch.float64, device=XLA) for _ in range(2))
        with counting() as counts:
            x.mul_(rates[0])
            y.mul_(rates[1])
            xm.mark_step()
        assert counts.compiles == (1 if rates == [0.1, 0.1] else 0)
        assert (x.tolist(), y.tolist()) == ([rates[0]] * 2, [rates[1]] * 2)


def bytes_alive() -> int:
    gc.collect()
    arrays = {
        id(value.array): value.array.nbytes
        for value in gc.get_objects()
        if type(value) is Value and value.array is not None and not value.array.is_deleted()
    }
    return sum(arrays.values())


def test_memory_does_not_grow_and_parameters_take_over_their_buffers() -> None:
    others = bytes_alive()  # of tests before this one
    module, optimizer = setup(XLA)
    batch = data(8, 0, XLA)
    sizes = {}
    for i in range(10):
        before = [value_of(p).array for p in module.parameters()]
        step(module, optimizer, batch)
        barrier(XLA)
        if i > 2:
            assert all(array.is_deleted() for array in before)
        del before
        if i in (2, 9):  # looking at all that is alive takes a second
            sizes[i] = bytes_alive() - others
    assert sizes[2] == sizes[9]
    parameters = sum(p.nbytes for p in module.parameters())
    buffers = sum(b.nbytes for b in module.buffers())
    steps = 4 * len(list(module.parameters()))  # Adam counts steps in float32, on the CPU
    inputs = sum(t.nbytes for t in batch)
    assert sizes[9] <= 4 * parameters + buffers + steps + inputs  # with gradients and moments
