"""The line of the user's program that calls an op: the innermost one outside PyTorch and compat."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import CodeType

import torch

# A code object and the line in it.
Location = tuple[CodeType, int]

_LIBRARY = (os.path.dirname(torch.__file__) + os.sep, str(Path(__file__).parents[1]) + os.sep)


@functools.lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARY)


def user_location() -> Location | None:
    """The innermost line outside PyTorch and this package."""
    frame = sys._getframe(1)
    while frame is not None:
        if not _is_library(frame.f_code.co_filename):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None
