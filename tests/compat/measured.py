"""What the tests of metrics measure, and how they read it."""

from __future__ import annotations

import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met

from tests.like_eager.lazy import XLA


def step(rows: int = 4) -> torch.Tensor:
    """A trace that sends rows * 4 numbers of float32 and computes a relu of (rows, rows)."""
    x = torch.ones(rows, 4).to(XLA)
    y = torch.relu(x.mm(x.t())) + 1.5
    xm.mark_step()
    return y


def data(name: str) -> tuple[int, float, tuple[tuple[float, float], ...]]:
    """A metric that has samples."""
    found = met.metric_data(name)
    assert found is not None
    return found
