"""The line of the user's program that calls an op: the innermost one outside PyTorch and this."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import NamedTuple

import torch


class Location(NamedTuple):
    """A line, by the names of its file and function: a code object may hold what has no hash."""

    file: str
    function: str
    line: int


_LIBRARY = (os.path.dirname(torch.__file__) + os.sep, str(Path(__file__).parents[2]) + os.sep)


@functools.lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARY)


def user_location() -> Location | None:
    """The innermost line outside PyTorch and this package."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _is_library(code.co_filename):
            return Location(code.co_filename, code.co_name, frame.f_lineno)
        frame = frame.f_back
    return None
