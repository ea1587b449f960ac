"""The names of torch_xla's C++ extension that scripts call."""

from __future__ import annotations
