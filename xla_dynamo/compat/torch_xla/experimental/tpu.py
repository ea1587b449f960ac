"""torch_xla.experimental.tpu: torch_xla._internal.tpu, as 1.13 and 2.0 called it."""

from __future__ import annotations

from typing import Any

from xla_dynamo.compat.torch_xla._internal import tpu as _now


def __getattr__(name: str) -> Any:
    return getattr(_now, name)
