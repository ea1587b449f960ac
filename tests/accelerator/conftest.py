"""On the accelerator, of which the processes of a run take memory as they need it."""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
