"""The names of torch_xla, and a fresh device for each test of this folder."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

import xla_dynamo.compat  # noqa: F401
from xla_dynamo.compat.recording import metrics, pending


@pytest.fixture(autouse=True)
def fresh_devices() -> Iterator[None]:
    """Nothing pending, nothing compiled, nothing counted.

    Which values live decides what is compiled, and Dynamo's frames are cycles: they are collected
    after each of its compiles, as for users.
    """
    _forget()
    with torch._dynamo.config.patch(run_gc_after_compile=True):
        yield
    _forget()


@pytest.fixture
def counted_from_zero(fresh_devices: None) -> Iterator[None]:
    """Nothing pending, running or counted, and no tensor that another test left."""
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as met

    xm.mark_step(wait=True)
    met.clear_all()
    gc.collect()
    yield
    met.clear_all()


def _forget() -> None:
    pending.forget()
    metrics.settle()
    with metrics.lock:
        metrics.counters.clear()
        metrics.metrics.clear()
        metrics.launches.clear()
