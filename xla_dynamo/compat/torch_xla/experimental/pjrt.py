"""torch_xla.experimental.pjrt: what 1.13 and 2.0 had for torch_xla.runtime."""

from __future__ import annotations

from typing import Any

from .. import runtime as _runtime
from .._internal.pjrt import run_multiprocess as run_multiprocess
from .._internal.pjrt import spawn as spawn
from .._internal.pjrt import spawn_threads as spawn_threads
from ..core.xla_model import broadcast_master_param as broadcast_master_param
from ..core.xla_model import xla_rendezvous as rendezvous  # noqa: F401
from ..runtime import global_runtime_device_attributes as global_device_attributes  # noqa: F401
from ..runtime import runtime_device_attributes as device_attributes  # noqa: F401


def __getattr__(name: str) -> Any:
    return getattr(_runtime, name)
