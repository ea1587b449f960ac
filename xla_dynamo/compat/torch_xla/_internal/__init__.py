"""torch_xla._internal: the private modules that libraries import."""

from __future__ import annotations

from xla_dynamo.compat.namespace.submodules import on_demand

__getattr__ = on_demand(__name__)
