"""Ctrl-C inside of a block that must not stop halfway -> Ctrl-C right after it.

A launch gives away the memory of its inputs: were it interrupted before its results are held,
parameters would be lost. Shape inference, lowering and compiling run code of PyTorch, torch-mlir
and JAX that is left broken by an exception at an arbitrary line: fake tensor modes that stay
entered, modules that cannot be imported a second time.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_main = threading.main_thread().ident


class _Note:
    """A handler that keeps the first signal for later."""

    def __init__(self, usual: Callable[..., Any], once: bool) -> None:
        self.usual = usual
        self.once = once
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, *event: Any) -> None:
        if self.once and self.seen:
            self.usual(*event)
        self.seen.append(event)


@contextmanager
def deferred(*, once: bool = False) -> Iterator[None]:
    """Run the block; a SIGINT that comes meanwhile is handled at its end.

    once: a second one is handled at once: a compile may take minutes. A block inside of another one
    that is deferred is part of that.
    """
    usual: Any = signal.getsignal(signal.SIGINT)
    nested = isinstance(usual, _Note)
    if threading.get_ident() != _main or not callable(usual) or nested:
        yield
        return
    note = _Note(usual, once)
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if note.seen:
            usual(*note.seen[0])
