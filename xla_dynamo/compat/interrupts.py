"""Ctrl-C between a launch and the lines that keep its results -> Ctrl-C right after them.

A launch gives away the memory of its inputs: were it interrupted before its results are held,
parameters would be lost.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_main = threading.main_thread().ident


@contextmanager
def deferred() -> Iterator[None]:
    """Run the block; a SIGINT that comes meanwhile is handled at its end."""
    usual: Any = signal.getsignal(signal.SIGINT)
    if threading.get_ident() != _main or not callable(usual):
        yield
        return
    seen: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *event: seen.append(event))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if seen:
            usual(*seen[0])
