"""The warning for an op that runs on the CPU: the op, the user's line, why, and what to do."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend import metrics as backend_metrics
from xla_dynamo.compat.recording import metrics
from xla_dynamo.compat.values import describe
from xla_dynamo.compat.values.source_location import Location


def report(func: Any, location: Location | None) -> None:
    """Count an op that ran on the CPU, and warn once for each line."""
    metrics.count_fallback(func)
    backend_metrics.warn_once(
        (func, location), message(func, location), backend_metrics.FallbackWarning
    )


def message(func: Any, location: Location | None) -> str:
    """The warning for an op that runs on the CPU at once."""
    values = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}
    why = (
        "the shape of its result depends on values, which XLA cannot express"
        if values
        else "PyTorch cannot tell the shape of its result beforehand"
    )
    return (
        f"{describe.op_name(func)} at {describe.where(location)} runs on the CPU: {why}. "
        "Each time, this waits for the device and copies operands and results. "
        "Do it outside the training step if you can."
    )
