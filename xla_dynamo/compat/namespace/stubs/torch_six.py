"""torch._six, which PyTorch had until 1.13 for Python 2: what scripts import from it."""

from __future__ import annotations

import builtins as builtins
import collections.abc as container_abcs  # noqa: F401
import io
import math
import queue as queue
from typing import Any

inf = math.inf
nan = math.nan
PY2 = False
PY3 = True
PY37 = True
string_classes = (str, bytes)
int_classes = int
FileNotFoundError = builtins.FileNotFoundError
StringIO = io.StringIO


def istuple(obj: Any) -> bool:
    """Whether it is a tuple (or what C++ returns as one)."""
    return isinstance(obj, tuple)


def get_function_from_type(cls: type, name: str) -> Any:
    """The attribute `name` of a class, or None."""
    return getattr(cls, name, None)


def with_metaclass(meta: type, *bases: type) -> type:
    """A base class with a metaclass."""
    return meta("base", bases, {})
