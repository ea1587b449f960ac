"""torch_xla_py.graph_saver: torch_xla.debug.graph_saver."""

from __future__ import annotations

import sys

from torch_xla.debug import graph_saver

sys.modules[__name__] = graph_saver
