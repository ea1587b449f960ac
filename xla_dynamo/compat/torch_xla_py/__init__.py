"""The package torch_xla as it was called until September 2019, with its behaviour then."""

from __future__ import annotations

from xla_dynamo.compat.namespace.submodules import on_demand

__getattr__ = on_demand(__name__)
