"""torch_xla_py.xla_env_vars: torch_xla.core.xla_env_vars."""

from __future__ import annotations

import sys

from torch_xla.core import xla_env_vars

sys.modules[__name__] = xla_env_vars
