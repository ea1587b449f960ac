"""The names of torch_xla, for the tests of this folder."""

from __future__ import annotations

import xla_dynamo.compat  # noqa: F401
