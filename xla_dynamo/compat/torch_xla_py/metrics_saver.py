"""torch_xla_py.metrics_saver: torch_xla.debug.metrics_saver."""

from __future__ import annotations

import sys

from torch_xla.debug import metrics_saver

sys.modules[__name__] = metrics_saver
