"""Errors of ours pass through Dynamo as they are, their message first.

Dynamo wraps what a backend raises in a BackendCompilerFailed, unless it is one already. Ours become
one that is also what it was: who catches UnsupportedOp catches it, and so does who catches
Dynamo's. Dynamo adds its own text behind the message.

Private API met here, seen on torch 2.13: BackendCompilerFailed and ShortenTraceback of
torch._dynamo.exc.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch._dynamo.exc import BackendCompilerFailed, ShortenTraceback

from xla_dynamo.errors import XlaDynamoError


@contextlib.contextmanager
def passing_through(backend: str, frame: FrameType) -> Iterator[None]:
    """Raise errors of ours so that Dynamo does not wrap them.

    backend: the backend's name; frame: the caller's: Dynamo leaves out what is above it.
    """
    try:
        yield
    except XlaDynamoError as error:
        made = _both(type(error))(*error.args, first_useful_frame=frame)
        made.__dict__.update(error.__dict__, backend_name=backend, inner_exception=error)
        raise made.with_traceback(error.__traceback__) from error.__cause__


@functools.cache
def _both(kind: type[XlaDynamoError]) -> Callable[..., XlaDynamoError]:
    """An error class that is `kind`, by name too, and Dynamo's."""
    names: dict[str, Any] = {n: getattr(kind, n) for n in ("__module__", "__qualname__", "__doc__")}
    names["__init__"] = ShortenTraceback.__init__
    names["__reduce__"] = lambda self: self.inner_exception.__reduce__()
    return type(kind.__name__, (kind, BackendCompilerFailed), names)
