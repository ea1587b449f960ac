"""torch_xla.test: helpers of the official example scripts."""

from __future__ import annotations

from xla_dynamo.compat.namespace.submodules import on_demand

__getattr__ = on_demand(__name__)
