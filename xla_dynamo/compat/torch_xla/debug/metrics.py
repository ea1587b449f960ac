"""torch_xla.debug.metrics: counters and timings of the lazy device."""

from __future__ import annotations

from xla_dynamo.compat.reporting.metrics_report import clear_all as clear_all
from xla_dynamo.compat.reporting.metrics_report import clear_counters as clear_counters
from xla_dynamo.compat.reporting.metrics_report import clear_metrics as clear_metrics
from xla_dynamo.compat.reporting.metrics_report import counter_names as counter_names
from xla_dynamo.compat.reporting.metrics_report import counter_value as counter_value
from xla_dynamo.compat.reporting.metrics_report import (
    executed_fallback_ops as executed_fallback_ops,
)
from xla_dynamo.compat.reporting.metrics_report import metric_data as metric_data
from xla_dynamo.compat.reporting.metrics_report import metric_names as metric_names
from xla_dynamo.compat.reporting.metrics_report import metrics_report as metrics_report
from xla_dynamo.compat.reporting.metrics_report import short_metrics_report as short_metrics_report
