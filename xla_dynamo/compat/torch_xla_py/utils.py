"""torch_xla_py.utils: torch_xla.utils.utils."""

from __future__ import annotations

import sys

from torch_xla.utils import utils

sys.modules[__name__] = utils
