"""What reports on a program never stops it: a report that cannot be made is left out.

Warnings, reasons of recompiles, metrics, dumps, debugging output and the disk cache are made by
functions that are `optional`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .bounded import Bounded
from .config import config

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("xla_dynamo.bookkeeping")
_told: Bounded[tuple[str, type], bool] = Bounded(1024)


def optional(otherwise: T) -> Callable[[Callable[P, R]], Callable[P, R | T]]:
    """Let the decorated function return `otherwise` where it fails; a log says so, once.

    Raises:
        Warning: the user has made warnings errors.
        Exception: the function failed, and config().strict asks for it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | T]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | T:
            try:
                return function(*args, **kwargs)
            except Warning:
                raise
            except Exception as error:
                if config().strict:
                    raise
                _tell(f"{function.__module__}.{function.__qualname__}", error)
                return otherwise

        return guarded

    return decorate


def _tell(name: str, error: Exception) -> None:
    if (name, type(error)) not in _told:
        _told[name, type(error)] = True
        # A folder that cannot be written to is no bug, and needs no traceback.
        trace = None if isinstance(error, OSError) else error
        _log.warning("A report is left out: %s failed: %r", name, error, exc_info=trace)
