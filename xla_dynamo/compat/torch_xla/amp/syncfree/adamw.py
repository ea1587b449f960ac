"""The module in which torch_xla keeps AdamW."""

from __future__ import annotations

from .adam import AdamW as AdamW
