"""torch_xla_py.xla_dist: torch_xla.distributed.xla_dist."""

from __future__ import annotations

import sys

from torch_xla.distributed import xla_dist

sys.modules[__name__] = xla_dist
