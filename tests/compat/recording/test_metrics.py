"""Metrics and counters: torch_xla's names, and what they count."""

from __future__ import annotations

import copy
import threading
import time

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import nn

import xla_dynamo
from tests.compat.measured import data, step
from xla_dynamo.compat.recording import metrics

XLA = torch.device("xla:0")

pytestmark = pytest.mark.usefixtures("counted_from_zero")


def test_what_a_step_counts() -> None:
    for _ in range(3):
        y = step()
    assert y.shape == (4, 4)
    counted = {name: met.counter_value(name) or 0 for name in met.counter_names()}
    assert counted.pop("UncachedCompile", 0) + counted.pop("CachedCompile") == 3
    counted.pop("CreateCompileHandles", 0)
    assert counted["MarkStep"] == 3
    assert counted["ExecuteComputation"] == 3
    assert counted["xla::mm"] == 3
    assert counted["xla::relu"] == 3
    assert counted["xla::add"] == 3
    assert counted["xla::_copy_from"] == 3
    assert counted["CreateDataHandles"] == 6  # one upload and one result a step
    calls = sum(value for name, value in counted.items() if name.startswith("xla::"))
    assert counted["CreateXlaTensor"] == calls
    assert 0 < counted["DestroyXlaTensor"] < calls


def test_pending_ops_count_before_the_barrier_and_once() -> None:
    x = torch.ones(3).to(XLA)
    y = x.exp() + x.exp()
    assert met.counter_value("xla::exp") == 2
    xm.mark_step()
    assert met.counter_value("xla::exp") == 2
    torch.testing.assert_close(y.cpu(), 2 * torch.ones(3).exp())


def test_ops_that_were_pending_when_cleared_do_not_count() -> None:
    y = torch.ones(3).to(XLA).exp()
    met.clear_counters()
    assert met.counter_value("xla::exp") is None
    xm.mark_step()
    assert met.counter_value("xla::exp") is None
    z = y.exp()
    assert met.counter_value("xla::exp") == 1
    assert z.shape == y.shape


def test_foreach_ops_count_as_what_they_are() -> None:
    model = nn.Linear(3, 2).to(XLA)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(2, 3).to(XLA)).sum().backward()
    xm.mark_step()
    met.clear_all()
    optimizer.step()
    xm.mark_step()
    assert not [name for name in met.counter_names() if "foreach" in name]
    assert met.counter_value("xla::add") == 2


def test_clearing_counters_forgets_their_names() -> None:
    step()
    met.clear_counters()
    assert met.counter_names() == []
    assert met.counter_value("MarkStep") is None
    assert met.metric_names() != []
    met.clear_metrics()
    assert met.metric_names() == []
    assert met.metric_data("CompileTime") is None


def test_unknown_names() -> None:
    assert met.counter_value("xla::no_such_op") is None
    assert met.counter_value("NoSuchCounter") is None
    assert met.metric_data("NoSuchMetric") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [("CachedSyncTensors", "CachedCompile"), ("UncachedSyncTensors", "UncachedCompile")],
)
def test_names_of_old_releases(old: str, new: str) -> None:
    x = torch.ones(7, 3).to(XLA)
    for _ in range(2):
        y = x.exp().sin().cos()
        xm.mark_step()
    assert y.shape == (7, 3)
    assert met.counter_value(old) == met.counter_value(new)
    assert data("TransferToServerTime") == data("TransferToDeviceTime")


def test_transfers_are_measured_in_bytes_and_time() -> None:
    x = torch.ones(10, dtype=torch.float64).to(XLA)
    assert data("OutboundData")[:2] == (1, 80.0)
    assert x.cpu().sum() == 10
    assert data("InboundData")[:2] == (1, 80.0)
    total, accumulated, samples = data("TransferFromDeviceTime")
    assert total == 1
    assert samples[0][1] == accumulated > 0
    assert abs(samples[0][0] - time.time()) < 60


def test_updated_parameters_are_counted_as_aliases() -> None:
    model = nn.Linear(5, 6).to(XLA)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    xm.mark_step()
    met.clear_all()
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 5).to(XLA)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    count, aliased, _ = data("InputOutputAliasCount")
    assert count >= 1
    assert aliased >= 2


def test_fallbacks_are_counted_by_op() -> None:
    x = torch.eye(2).to(XLA)
    with pytest.warns(xla_dynamo.FallbackWarning):
        assert torch.linalg.lstsq(x, x).solution.shape == (2, 2)
    assert x.sum().item() == 2.0
    assert bool(x[1, 1] == 1)
    assert met.counter_value("aten::linalg_lstsq") == 1
    assert met.counter_value("aten::_local_scalar_dense") == 2
    assert set(met.executed_fallback_ops()) == {
        "aten::linalg_lstsq",
        "aten::_local_scalar_dense",
    }


def test_execute_time_is_that_of_the_device() -> None:
    x = torch.ones(1500, 1500).to(XLA)
    y = x @ x
    xm.mark_step(wait=True)
    met.clear_all()
    start = time.perf_counter_ns()
    y = y @ x
    xm.mark_step()
    y.cpu()
    passed = time.perf_counter_ns() - start
    count, spent, samples = data("ExecuteTime")
    assert count == len(samples) == 1
    assert 0 < spent <= passed


def test_graphs_of_torch_compile_are_measured() -> None:
    double = torch.compile(lambda x, y: (x * 2, y + 1, x * y), backend="xla")
    x = torch.ones(3).to(XLA)
    for _ in range(2):
        results = double(x.exp(), x)
    torch.testing.assert_close(results[0].cpu(), torch.ones(3).exp() * 2)
    assert data("RunCachedGraphInputData")[:2] == (2, 4.0)
    assert data("RunCachedGraphOutputData")[:2] == (2, 6.0)
    assert met.counter_value("DynamoSyncInputExecuteTime") == 1  # compiling is a barrier
    assert met.counter_value("ExecuteComputation") == 4
    assert data("ExecuteTime")[0] == 4


@pytest.mark.parametrize("backend", ["xla", "openxla"])
def test_graphs_of_torch_compile_are_compiled_once_a_shape(backend: str) -> None:
    module = nn.Linear(3, 2).requires_grad_(False)
    compiled = torch.compile(copy.deepcopy(module).to(XLA), backend=backend)
    for launches, (rows, programs) in enumerate(((2, 1), (2, 1), (5, 2), (5, 2)), 1):
        x = torch.ones(rows, 3)
        torch.testing.assert_close(compiled(x.to(XLA)).cpu(), module(x))
        assert data("CompileTime")[0] == met.counter_value("UncachedCompile") == programs
        assert data("ExecuteTime")[0] == met.counter_value("ExecuteComputation") == launches


def test_backward_of_a_graph_is_counted_too() -> None:
    compiled = torch.compile(nn.Sequential(nn.Linear(3, 2), nn.Tanh()).to(XLA), backend="xla")
    x = torch.ones(2, 3).to(XLA)
    xla_dynamo.reset_metrics()
    for _ in range(3):
        compiled(x).sum().backward()
        xm.mark_step()
    names = [record.graph.split()[-1] for record in xla_dynamo.compiles()]
    assert {"forward", "backward"} < set(names)
    assert met.counter_value("UncachedCompile") == data("CompileTime")[0] == len(names)


@pytest.mark.parametrize("backend", ["xla", "openxla"])
def test_what_is_saved_for_backward_needs_no_program(backend: str) -> None:
    """A weight's transpose, for one: forward and backward are a program each, a step."""
    first = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    eager, module = copy.deepcopy(first), first.to(XLA)
    compiled = torch.compile(module, backend=backend)
    weights = torch.ones(5, 2)
    on_device = weights.to(XLA)
    for steps in range(1, 4):
        eager.zero_grad()
        module.zero_grad()
        eager(torch.ones(5, 3)).backward(weights)
        compiled(torch.ones(5, 3).to(XLA)).backward(on_device)
        xm.wait_device_ops()
        assert data("ExecuteTime")[0] == 2 * steps
    for own, other in zip(module.parameters(), eager.parameters(), strict=True):
        assert own.grad is not None
        torch.testing.assert_close(own.grad.cpu(), other.grad)


def test_threads_lose_no_counts() -> None:
    def work() -> None:
        for _ in range(2000):
            metrics.count("threads")
            metrics.sample("samples", 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met.counter_value("threads") == 8000
    total, accumulated, samples = data("samples")
    assert (total, accumulated, len(samples)) == (8000, 8000.0, 1024)


def test_many_windows_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_STATES", 1)
    for rows in (2, 3, 4):
        step(rows)
    assert met.counter_value("xla::relu") == 3
    assert len(metrics.launches) <= 1
