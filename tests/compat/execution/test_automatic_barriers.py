"""Eager mode, and loops without barriers: values, counts of programs and launches, the warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import Tensor, nn
from torch_xla.experimental import eager_mode, eager_mode_context, is_eager_mode

from tests.compat.measured import data
from tests.like_eager.lazy import XLA, assert_lockstep, assert_same, to_device
from xla_dynamo.compat.execution import automatic_barriers
from xla_dynamo.compat.recording import trace

pytestmark = pytest.mark.usefixtures("counted_from_zero")
X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def train(module: nn.Module, x: Tensor, steps: int) -> list[Tensor]:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module(x).square().mean()  # the first line of a step
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces are looked at soon, as small programs compile soon."""
    monkeypatch.setattr(trace, "FIRST_LOOK", 128)
    monkeypatch.setattr(automatic_barriers, "NEXT_LOOK", 64)
    xm.mark_step()


@pytest.mark.usefixtures("short")
def test_a_loop_without_barriers_is_three_programs() -> None:
    theirs, ours = network(), to_device(network())
    expected = train(theirs, X.double(), 100)
    with pytest.warns(UserWarning, match="no barrier came") as caught:
        losses = train(ours, X.to(XLA, torch.float64), 100)
    (warning,) = caught
    assert f"{__file__}:" in str(warning.message)
    assert "torch_xla.sync()" in str(warning.message)
    assert_same(losses, expected, rtol=1e-12, atol=1e-12)
    assert_same(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=1e-12, atol=1e-12)
    launches = met.counter_value("ExecuteComputation") or 0
    assert met.counter_value("TrimIrGraph") == launches - 1 > 8
    assert met.counter_value("MarkStep") is None
    assert data("CompileTime")[0] == 3  # the beginning, every part after it, and the end


@pytest.mark.usefixtures("short")
def test_a_program_that_must_be_one_is_not_cut() -> None:
    def many(x: Tensor) -> Tensor:
        for _ in range(300):
            x = x * 0.5 + 1
        return x

    y = torch_xla.compile(many, full_graph=True)(X.to(XLA))
    assert_same(y, many(X))
    assert met.counter_value("ExecuteComputation") == 1


@pytest.fixture
def eager() -> Iterator[None]:
    """Eager mode, with nothing counted."""
    xm.mark_step(wait=True)
    with eager_mode_context(True):
        met.clear_all()
        yield


def eager_counts() -> tuple[int, int]:
    """(programs compiled, launches) of single ops."""
    xm.wait_device_ops()
    found = (met.metric_data(f"EagerOp{name}Time") for name in ("Compile", "Execute"))
    compiled, launched = (0 if metric is None else metric[0] for metric in found)
    return compiled, launched


@pytest.mark.usefixtures("eager")
def test_ops_run_when_they_are_called() -> None:
    host = torch.randn(3, 11)  # of a shape that no other test has
    x = host.to(XLA)
    assert eager_counts() == (0, 0)
    y = torch.logsumexp(x, 0)
    assert eager_counts() == (1, 1)
    z = torch.logsumexp(x, 0)
    assert eager_counts() == (1, 2)
    x *= 5
    assert eager_counts() == (2, 3)
    assert met.metric_data("ExecuteTime") is None
    assert met.counter_value("ExecuteComputation") == 3
    assert_same([x, y, z], [host * 5, host.logsumexp(0), host.logsumexp(0)])


@pytest.mark.usefixtures("eager")
def test_random_numbers_are_two_programs_as_in_torch_xla() -> None:
    """One makes the memory, one fills it."""
    t = torch.randn(5, 5, device=XLA)
    assert eager_counts() == (2, 2)
    t *= 5
    assert eager_counts() == (3, 3)
    assert not torch.equal(torch.randn(5, 5, device=XLA).cpu(), t.cpu() / 5)


@pytest.mark.usefixtures("eager")
def test_training_and_writes_through_views() -> None:
    def work(module: nn.Module, x: Tensor) -> list[Tensor]:
        y = x * 2
        y[0].add_(1)
        y.t()[1] = 7
        y[:, 2:].mul_(y[:, :1])
        return [y, *train(module, y, 3)]

    assert_lockstep(work, network(), X.double(), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("eager")
def test_compiled_functions_are_one_program() -> None:
    def work(x: Tensor) -> Tensor:
        return torch.cos(torch.sin(x))

    x = X.to(XLA)
    compiled = [torch_xla.compile(work), torch.compile(work, backend="openxla")]
    for launches, function in enumerate(compiled, 1):
        assert_same(function(x), work(X))
        xm.wait_device_ops()
        assert data("ExecuteTime")[0] == data("CompileTime")[0] == launches
    assert eager_counts() == (0, 0)
    assert is_eager_mode()


@pytest.mark.usefixtures("eager")
def test_an_op_that_fails_raises_where_it_is_called() -> None:
    x = X.to(XLA)
    with pytest.raises(RuntimeError, match="shape"):
        torch.mm(x, x)
    with pytest.raises(RuntimeError, match="Unexpected execution happens"):
        torch_xla.compile(lambda x: x.sum().item(), full_graph=True)(x)
    assert is_eager_mode()
    assert_same(x + 1, X + 1)


def test_the_switch() -> None:
    assert not is_eager_mode()
    with eager_mode_context(True) as before:
        assert before is False
        assert is_eager_mode()
    eager_mode(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = X.to(XLA) + 1
    assert met.counter_value("ExecuteComputation") is None
    assert_same(y, X + 1)
