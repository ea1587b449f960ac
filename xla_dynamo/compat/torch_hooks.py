"""What of PyTorch has to know about the device `xla`: the one place that sets it, and undoes it."""

from __future__ import annotations


def install() -> None:
    """Tell PyTorch."""


def uninstall() -> None:
    """Undo install()."""
