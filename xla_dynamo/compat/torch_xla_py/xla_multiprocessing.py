"""torch_xla_py.xla_multiprocessing: torch_xla.distributed.xla_multiprocessing."""

from __future__ import annotations

import sys

from torch_xla.distributed import xla_multiprocessing

sys.modules[__name__] = xla_multiprocessing
