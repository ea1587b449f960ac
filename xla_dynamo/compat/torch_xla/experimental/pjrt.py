"""torch_xla.experimental.pjrt: what 1.13 and 2.0 had for torch_xla.runtime."""

from __future__ import annotations

from typing import Any

from xla_dynamo.compat.torch_xla import runtime as _runtime
from xla_dynamo.compat.torch_xla._internal.pjrt import run_multiprocess as run_multiprocess
from xla_dynamo.compat.torch_xla._internal.pjrt import spawn as spawn
from xla_dynamo.compat.torch_xla._internal.pjrt import spawn_threads as spawn_threads
from xla_dynamo.compat.torch_xla.core.xla_model import (
    broadcast_master_param as broadcast_master_param,
)
from xla_dynamo.compat.torch_xla.core.xla_model import xla_rendezvous as rendezvous  # noqa: F401
from xla_dynamo.compat.torch_xla.runtime import (
    global_runtime_device_attributes as global_device_attributes,  # noqa: F401
)
from xla_dynamo.compat.torch_xla.runtime import runtime_device_attributes as device_attributes  # noqa: F401


def __getattr__(name: str) -> Any:
    return getattr(_runtime, name)
