"""torch_xla.debug.metrics_saver: the metrics report of a step, appended to a file."""

from __future__ import annotations

import os

from xla_dynamo.compat.reporting import debugging

_step = debugging.Steps()


def save_metrics(metrics_file: str | None = None) -> None:
    """Append the report to a file (default: XLA_METRICS_FILE; without it, do nothing)."""
    target = metrics_file or os.environ.get("XLA_METRICS_FILE")
    if target:
        debugging.write_metrics(target, _step)
