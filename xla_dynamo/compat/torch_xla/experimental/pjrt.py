"""torch_xla.experimental.pjrt: what 1.13 and 2.0 had for torch_xla.runtime."""

from __future__ import annotations

from typing import Any

from .. import runtime
from .._internal.pjrt import run_multiprocess as run_multiprocess
from .._internal.pjrt import spawn as spawn
from .._internal.pjrt import spawn_threads as spawn_threads
from ..core import xla_model

broadcast_master_param = xla_model.broadcast_master_param
rendezvous = xla_model.xla_rendezvous
device_attributes = runtime.runtime_device_attributes
global_device_attributes = runtime.global_runtime_device_attributes


def __getattr__(name: str) -> Any:
    return getattr(runtime, name)
