"""The text of metrics_report and short_metrics_report, and what parses and compares it."""

from __future__ import annotations

import re

import pytest
import torch
import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.debug.metrics_compare_utils as mcu

import xla_dynamo
from tests.compat.measured import data, step
from tests.programs import python
from xla_dynamo.compat.values.format_units import show_bytes, show_time

pytestmark = pytest.mark.usefixtures("counted_from_zero")

_TIME = r"(?:\d\dd)?(?:\d\dh)?(?:\d\dm)?(?:\d\ds)?(?:\d{3}ms)?\d{3}\.\d{3}us"


def test_the_text_of_the_report() -> None:
    for _ in range(3):
        step().cpu()
    report = met.metrics_report()
    time_of = rf"Metric: TransferToDeviceTime\n  TotalSamples: 3\n  Accumulator: {_TIME}\n"
    rates = rf"  ValueRate: {_TIME} / second\n  Rate: [0-9.e+]+ / second\n"
    points = "; ".join(rf"{p}%={_TIME}" for p in (1, 5, 10, 20, 50, 80, 90, 95, 99))
    assert re.search(time_of + rates + rf"  Percentiles: {points}\n", report)
    assert "Metric: OutboundData\n  TotalSamples: 3\n  Accumulator: 192.00B\n" in report
    assert "Counter: MarkStep\n  Value: 3\n" in report
    assert "Counter: MarkStep\n  Value: 3\n" in torch_xla._XLAC._xla_metrics_report()


def test_the_order_of_the_report() -> None:
    with pytest.warns(xla_dynamo.FallbackWarning):
        torch.linalg.lstsq(step(), step())
    lines = [line for line in met.metrics_report().splitlines() if line[0] in "MC"]
    expected = ["Metric: TensorsGraphSize", "Counter: ExecuteComputation", "Counter: xla::relu"]
    expected += ["Metric: ExecuteTime", "Metric: OutboundData", "Counter: MarkStep"]
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


def test_a_report_of_nothing_is_empty() -> None:
    met.clear_all()
    assert met.short_metrics_report() == met.metrics_report() == ""


def test_the_short_report() -> None:
    with pytest.warns(xla_dynamo.FallbackWarning):
        torch.linalg.lstsq(step(), step())
    short = met.short_metrics_report()
    assert "Counter: MarkStep" in short
    assert "Metric: TransferToDeviceTime" in short
    assert "xla::relu" not in short
    assert "OutboundData" not in short
    chosen = met.short_metrics_report(counter_names=["xla::relu"], metric_names=["OutboundData"])
    assert re.findall(r"(?:Counter|Metric): (\S+)", chosen) == [
        "xla::relu",
        "OutboundData",
        "aten::linalg_lstsq",
    ]


def test_the_report_is_parsed_by_torch_xla_s_own_patterns() -> None:
    for _ in range(3):
        step().cpu()
    parsed = mcu.parse_metrics_report(met.metrics_report())
    assert parsed["MarkStep__Value"] == 3
    assert parsed["OutboundData__TotalSamples"] == 3
    assert parsed["OutboundData__Accumulator_mb"] == pytest.approx(192e-6)
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


def test_percentiles_and_samples_of_the_environment() -> None:
    printed = python(
        """
        from xla_dynamo.compat.recording import metrics
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
