"""torch_xla_py.keyd_queue: torch_xla.utils.keyd_queue."""

from __future__ import annotations

import sys

from torch_xla.utils import keyd_queue

sys.modules[__name__] = keyd_queue
