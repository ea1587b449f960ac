"""torch_xla.experimental."""

from __future__ import annotations

from xla_dynamo.compat.namespace.submodules import on_demand

from .eager import eager_mode as eager_mode
from .eager import eager_mode_context as eager_mode_context
from .eager import is_eager_mode as is_eager_mode

__getattr__ = on_demand(__name__)
