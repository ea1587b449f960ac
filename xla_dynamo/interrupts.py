"""Defer Ctrl-C to the end of a block that must not be interrupted, or end the process with it.

A launch donates the memory of its inputs: if it were interrupted before its results are stored,
parameters would be lost. Shape inference, lowering and compiling run code of PyTorch, torch-mlir
and JAX that an exception at an arbitrary line leaves broken: fake tensor modes stay entered,
modules cannot be imported a second time.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_main = threading.main_thread().ident
# What the module `signal` wraps: it makes enums of numbers, which takes 9 us of every launch.
_signal: Any = importlib.import_module("_signal")


class _Deferral:
    """A handler that keeps the first signal for later."""

    def __init__(self, usual: Callable[..., Any], once: bool) -> None:
        self.usual = usual
        self.once = once
        self.events: list[tuple[Any, ...]] = []

    def __call__(self, *event: Any) -> None:
        if self.once and self.events:
            self.usual(*event)
        self.events.append(event)


@contextmanager
def deferred(*, once: bool = False) -> Iterator[None]:
    """Run the block; a SIGINT that comes meanwhile is handled at its end.

    once: a second SIGINT is handled at once, as a compile may take minutes. A block within another
    one is part of it.
    """
    usual: Any = _signal.getsignal(signal.SIGINT) if threading.get_ident() == _main else None
    if not callable(usual) or isinstance(usual, _Deferral):
        yield
        return
    deferral = _Deferral(usual, once)
    _signal.signal(signal.SIGINT, deferral)
    try:
        yield
    finally:
        _signal.signal(signal.SIGINT, usual)
        if deferral.events:
            usual(*deferral.events[0])


@contextmanager
def ending_the_process() -> Iterator[None]:
    """Run the block, a part of the process's exit; Ctrl-C in it ends the process at once.

    Python would print it and go on with the exit, beside what the block waited for.
    """
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)  # as Python's own end by Ctrl-C
