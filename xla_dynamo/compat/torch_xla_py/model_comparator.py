"""torch_xla_py.model_comparator: torch_xla.debug.model_comparator."""

from __future__ import annotations

import sys

from torch_xla.debug import model_comparator

sys.modules[__name__] = model_comparator
