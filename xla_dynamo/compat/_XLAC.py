"""`import _XLAC`: the module that is torch_xla._XLAC."""

from __future__ import annotations

import importlib
import sys

sys.modules[__name__] = importlib.import_module("torch_xla._XLAC")
