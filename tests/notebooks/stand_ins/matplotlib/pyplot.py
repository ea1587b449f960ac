"""Figures without content."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

rcParams: dict[str, Any] = {}
plot = broken_barh = yticks = ylim = xlabel = ylabel = show = MagicMock()


def subplots(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return MagicMock(), MagicMock()


def savefig(*args: Any, **kwargs: Any) -> None: ...
