"""The package torch_xla as it was called until September 2019, with its behaviour then."""

from __future__ import annotations
