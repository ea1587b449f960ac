"""torch_xla.experimental."""

from __future__ import annotations

from .eager import *  # noqa: F403
