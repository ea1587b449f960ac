"""torch_xla's top level on xla_dynamo."""

from __future__ import annotations

__version__ = "2.9.0+xla.dynamo"
