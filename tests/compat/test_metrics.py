"""Metrics and counters: torch_xla's names, its report's text, and what they count."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Iterator

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.debug.metrics_compare_utils as mcu
from programs import python
from torch import nn

import xla_dynamo
from xla_dynamo.compat import metrics
from xla_dynamo.compat.completion import Watch
from xla_dynamo.compat.units import show_bytes, show_time

XLA = torch.device("xla:0")


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    """Nothing pending, running or counted, and no tensor that another test left."""
    xm.mark_step(wait=True)
    met.clear_all()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    met.clear_all()


def step(rows: int = 4) -> torch.Tensor:
    x = torch.ones(rows, 4).to(XLA)
    y = torch.relu(x.mm(x.t())) + 1.5
    xm.mark_step()
    return y


def data(name: str) -> tuple[int, float, tuple[tuple[float, float], ...]]:
    """A metric that has samples."""
    found = met.metric_data(name)
    assert found is not None
    return found


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
    assert data("InboundData")[:2] == (1, 80.0)
    assert x.cpu().sum() == 10
    assert data("OutboundData")[:2] == (1, 80.0)
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


_TIME = r"(?:\d\dd)?(?:\d\dh)?(?:\d\dm)?(?:\d\ds)?(?:\d{3}ms)?\d{3}\.\d{3}us"


def test_the_text_of_the_report() -> None:
    for _ in range(3):
        step().cpu()
    report = met.metrics_report()
    time_of = rf"Metric: TransferToDeviceTime\n  TotalSamples: 3\n  Accumulator: {_TIME}\n"
    rates = rf"  ValueRate: {_TIME} / second\n  Rate: [0-9.e+]+ / second\n"
    points = "; ".join(rf"{p}%={_TIME}" for p in (1, 5, 10, 20, 50, 80, 90, 95, 99))
    assert re.search(time_of + rates + rf"  Percentiles: {points}\n", report)
    assert "Metric: InboundData\n  TotalSamples: 3\n  Accumulator: 192.00B\n" in report
    assert "Counter: MarkStep\n  Value: 3\n" in report
    assert "Counter: MarkStep\n  Value: 3\n" in torch_xla._XLAC._xla_metrics_report()


def test_the_order_of_the_report() -> None:
    with pytest.warns(xla_dynamo.FallbackWarning):
        torch.linalg.lstsq(step(), step())
    lines = [line for line in met.metrics_report().splitlines() if line[0] in "MC"]
    expected = ["Metric: TensorsGraphSize", "Counter: ExecuteComputation", "Counter: xla::relu"]
    expected += ["Metric: ExecuteTime", "Metric: InboundData", "Counter: MarkStep"]
    expected += ["Counter: aten::linalg_lstsq"]
    assert [line for line in lines if line in expected] == expected
    assert lines[-1] == "Counter: aten::linalg_lstsq"


def test_one_sample_has_no_rate() -> None:
    step()
    report = met.metrics_report()
    assert re.search(
        rf"Metric: TransferToDeviceTime\n  TotalSamples: 1\n  Accumulator: {_TIME}\n"
        r"  Percentiles: 1%=",
        report,
    )


def test_the_short_report() -> None:
    with pytest.warns(xla_dynamo.FallbackWarning):
        torch.linalg.lstsq(step(), step())
    short = met.short_metrics_report()
    assert "Counter: MarkStep" in short
    assert "Metric: TransferToDeviceTime" in short
    assert "xla::relu" not in short
    assert "InboundData" not in short
    chosen = met.short_metrics_report(counter_names=["xla::relu"], metric_names=["InboundData"])
    assert re.findall(r"(?:Counter|Metric): (\S+)", chosen) == [
        "xla::relu",
        "InboundData",
        "aten::linalg_lstsq",
    ]


def test_the_report_is_parsed_by_torch_xla_s_own_patterns() -> None:
    for _ in range(3):
        step().cpu()
    parsed = mcu.parse_metrics_report(met.metrics_report())
    assert parsed["MarkStep__Value"] == 3
    assert parsed["InboundData__TotalSamples"] == 3
    assert parsed["InboundData__Accumulator_mb"] == pytest.approx(192e-6)
    total = data("TransferToDeviceTime")[1]
    assert parsed["TransferToDeviceTime__Accumulator_sec"] == pytest.approx(total * 1e-9, abs=2e-9)


def test_parsing_and_comparing_reports() -> None:
    report = (
        "Metric: CompileTime\n  TotalSamples: 10\n  Accumulator: 01m02s362ms209.245us\n"
        "  Percentiles: 1%=003ms289.886us; 5%=1us; 10%=1us; 20%=1us; 50%=1us; 80%=1us; 90%=1us; "
        "95%=1us; 99%=150ms014.563us\nCounter: CachedCompile\n  Value: 7\n"
    )
    parsed = mcu.parse_metrics_report(report)
    assert parsed["CompileTime__Accumulator_sec"] == pytest.approx(62.362209245)
    assert parsed["CompileTime__Percentile_1_sec"] == pytest.approx(0.003289886)
    assert mcu.parse_metrics_report(report, dehumanize=False)["CompileTime__TotalSamples"] == (
        10.0,
        "10",
    )
    points = mcu.get_data_points_from_metrics_reports([report, report.replace(": 7", ": 9"), ""])
    assert points["CachedCompile__Value"] == [7, 9, None]
    worse = report.replace(": 7", ": 70") + "Counter: aten::nonzero\n  Value: 1\n"
    lines = mcu.compare_metrics(points, worse).splitlines()
    assert lines[0].startswith("CachedCompile__Value failed its expression check.")
    assert lines[1] == "Found new aten counter: aten::nonzero__Value: 1"
    assert mcu.compare_metrics(points, report) == ""


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (165, "000.165us"),
        (3_289_886, "003ms289.886us"),
        (8_859_613, "008ms859.613us"),
        (1_202_003_000, "01s202ms003.000us"),
        (60_000_000_000, "01m00s000ms000.000us"),
        (90_061_000_000_000, "01d01h01m01s000ms000.000us"),
        (0, "000.000us"),
    ],
)
def test_times(nanoseconds: int, text: str) -> None:
    assert show_time(nanoseconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(3, "3.00B"), (1577, "1.54KB"), (2**20, "1.00MB"), (2**50, "1.00PB"), (0, "0.00B")],
)
def test_bytes(number: int, text: str) -> None:
    assert show_bytes(number) == text


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
    assert met.counter_value("DynamoSyncInputExecuteTime") == 2
    assert met.counter_value("ExecuteComputation") == 4
    assert data("ExecuteTime")[0] == 4


class FakeArray:
    """An array that is ready when told."""

    def __init__(self) -> None:
        self.ready, self.deleted = threading.Event(), False

    def is_ready(self) -> bool:
        return self.ready.is_set()

    def is_deleted(self) -> bool:
        return self.deleted

    def block_until_ready(self) -> None:
        self.ready.wait(10)


def test_the_watch_reports_what_has_ended_in_order() -> None:
    spent: list[int] = []
    watch = Watch(spent.append)
    arrays = [FakeArray() for _ in range(3)]
    start = time.perf_counter_ns()
    for program, array in enumerate(arrays):
        watch.launched(start, array, program)
    watch.settle()
    assert spent == []
    arrays[0].ready.set()
    arrays[1].ready.set()
    watch.settle()
    assert len(spent) == 2
    arrays[2].ready.set()
    watch.settle()
    assert len(spent) == 3
    assert sum(spent) <= time.perf_counter_ns() - start


def test_a_result_that_was_given_away_shares_the_time_of_the_next() -> None:
    spent: list[int] = []
    watch = Watch(spent.append)
    first, second = FakeArray(), FakeArray()
    start = time.perf_counter_ns()
    watch.launched(start, first, 0)
    watch.launched(start, second, 1)
    first.deleted = True
    first.ready.set()
    watch.settle()
    assert spent == []
    second.ready.set()
    watch.settle()
    assert len(spent) == 2
    assert spent[0] == spent[1]


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


def test_percentiles_and_samples_of_the_environment() -> None:
    printed = python(
        """
        from xla_dynamo.compat import metrics
        import torch_xla.debug.metrics as met
        for n in range(10):
            metrics.sample("TensorsGraphSize", n)
        print(met.metrics_report())
        """,
        XLA_METRICS_PERCENTILES="0.25:0.5",
        XLA_METRICS_SAMPLES="4",
    )
    assert "TotalSamples: 10\n  Accumulator: 45.00\n" in printed
    assert "Percentiles: 25%=7.00; 50%=8.00\n" in printed
