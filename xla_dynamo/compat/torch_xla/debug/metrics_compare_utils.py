"""Parse metrics reports into numbers by name, and say what got worse since earlier reports.

"Metric: CompileTime ... Accumulator: 362ms209.245us"  ->  {"CompileTime__Accumulator_sec": 0.36}
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_POINTS = (1, 5, 10, 20, 50, 80, 90, 95, 99)
_METRIC = re.compile(
    r"Metric: (?P<name>\S+)\s+TotalSamples: (?P<TotalSamples>\d+)\s+"
    r"Accumulator: (?P<Accumulator>\S+)[^P]+Percentiles: "
    + "; ".join(rf"{point}%=(?P<Percentile_{point}>[^\s;]+)" for point in _POINTS)
)
_COUNTER = re.compile(r"Counter: (\S+)\s+Value: (\d+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]+)")
# By unit: what it is in seconds or megabytes, and the name of the sum.
_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_MEGABYTES = {"PB": 1e9, "TB": 1e6, "GB": 1e3, "MB": 1.0, "KB": 1e-3, "B": 1e-6}
_UNITS = {unit: (factor, "sec") for unit, factor in _SECONDS.items()} | {
    unit: (factor, "mb") for unit, factor in _MEGABYTES.items()
}
_DEFAULT = {"base_expression": "v <= v_mean + (v_stddev * 2.0)"}


def parse_metrics_report(report: str, dehumanize: bool = True) -> dict[str, Any]:
    """The numbers of a report: seconds ("CompileTime__Accumulator_sec"), megabytes ("_mb"), counts.

    Without `dehumanize`, what has a unit is a pair: the number, and the text as it stands.

    Raises:
        ValueError: a value has an unknown unit.
    """
    numbers: dict[str, Any] = {}
    for match in _METRIC.finditer(report):
        fields = match.groupdict()
        name = fields.pop("name")
        for field, text in fields.items():
            value, unit = _number(text)
            key = f"{name}__{field}_{unit}" if unit else f"{name}__{field}"
            numbers[key] = value if dehumanize else (value, text)
    for name, value in _COUNTER.findall(report):
        numbers[f"{name}__Value"] = int(value)
    return numbers


def _number(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        pass
    parts = _PART.findall(text)
    if not parts or any(unit not in _UNITS for _, unit in parts):
        raise ValueError(f"Unknown metric_str format: {text}")
    total = sum(float(number) * _UNITS[unit][0] for number, unit in parts)
    return total, _UNITS[parts[0][1]][1]


def get_data_points_from_metrics_reports(metrics_reports: Sequence[str]) -> dict[str, list[Any]]:
    """For each name its value in every report, in order; None where a report lacks it."""
    parsed = [parse_metrics_report(report) for report in metrics_reports]
    names = dict.fromkeys(name for numbers in parsed for name in numbers)
    return {name: [numbers.get(name) for numbers in parsed] for name in names}


def compare_metrics(
    data_points: Mapping[str, Sequence[Any]],
    metrics_report: str,
    config: Mapping[str, str] = _DEFAULT,
) -> str:
    """A line for each number of a report that is not as in `data_points`, and each new fallback.

    config: "base_expression", and "NAME_expression" for single names: Python over v, v_mean and
        v_stddev that is true where all is well.
    """
    lines = []
    for name, value in sorted(parse_metrics_report(metrics_report).items()):
        known = [point for point in data_points.get(name, ()) if point is not None]
        if not known:
            if name.startswith("aten::"):
                lines.append(f"Found new aten counter: {name}: {value}\n")
            continue
        mean, deviation = statistics.fmean(known), statistics.pstdev(known)
        expression = config.get(f"{name}_expression") or config["base_expression"]
        if not eval(expression, {}, {"v": value, "v_mean": mean, "v_stddev": deviation}):
            lines.append(
                f"{name} failed its expression check. Expression: {expression}.  Mean: {mean}.  "
                f"Stddev: {deviation}.  Actual Value: {value}\n"
            )
    return "".join(lines)
