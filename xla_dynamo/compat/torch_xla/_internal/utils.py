"""torch_xla._internal.utils."""

from __future__ import annotations

from xla_dynamo.compat.torch_xla.core.xla_model import parse_xla_device as parse_xla_device
