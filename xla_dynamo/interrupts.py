"""Ctrl-C inside of a block that must not stop halfway -> Ctrl-C right after it.

A launch gives away the memory of its inputs: were it interrupted before its results are held,
parameters would be lost. Shape inference, lowering and compiling run code of PyTorch, torch-mlir
and JAX that is left broken by an exception at an arbitrary line: fake tensor modes that stay
entered, modules that cannot be imported a second time.
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
