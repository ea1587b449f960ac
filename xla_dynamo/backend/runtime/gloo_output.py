"""Keeps what gloo prints on stdout, at the first launch of a program, out of the user's output."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_PREFIX = b"[Gloo]"
_STDOUT = 1


@contextmanager
def withheld() -> Iterator[None]:
    """What is printed within, by whomever, appears at the end; gloo's lines do not."""
    sys.stdout.flush()
    try:
        usual = os.dup(_STDOUT)
    except OSError:  # closed
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), _STDOUT)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(usual, _STDOUT)
            os.close(usual)
            file.seek(0)
            others = [line for line in file if not line.startswith(_PREFIX)]
            if others:
                os.write(_STDOUT, b"".join(others))
