"""torch_xla.utils: helpers of scripts."""

from __future__ import annotations
