"""Where in the user's program an op comes from."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import CodeType

import torch

# A code object and the line in it.
Place = tuple[CodeType, int]

_LIBRARY = (os.path.dirname(torch.__file__) + os.sep, str(Path(__file__).parents[1]) + os.sep)
_is_library: dict[str, bool] = {}


def user_place() -> Place | None:
    """The innermost line outside PyTorch and this package."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        library = _is_library.get(file)
        if library is None:
            library = _is_library[file] = file.startswith(_LIBRARY)
        if not library:
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None
