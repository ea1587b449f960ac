"""Tell from the source of a loop function how it unpacks the items of its loader.

Loaders gave `(i, batch)` until October 2019 and `batch` since, and scripts of both kinds import the
same modules. A loop `for _, (data, target) in loader` expects the former; `for data, target in
loader` and `enumerate(loader)` expect the latter.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def nested_target(loop_fn: Callable[..., Any]) -> int | None:
    """n, if the function has a loop `for x, (y1, ..., yn) in loader` over its second parameter.

    None for any other function, and where there is no source to read.
    """
    written: Any = loop_fn
    while isinstance(written, functools.partial):
        written = written.func
    try:
        names = list(inspect.signature(loop_fn).parameters)
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(written))))
    except (OSError, TypeError, ValueError, SyntaxError):
        return None
    if len(names) < 2:
        return None
    for loop in ast.walk(tree):
        if (
            isinstance(loop, (ast.For, ast.comprehension))
            and isinstance(loop.iter, ast.Name)
            and loop.iter.id == names[1]
            and isinstance(loop.target, (ast.Tuple, ast.List))
            and len(loop.target.elts) == 2
            and isinstance(inner := loop.target.elts[1], (ast.Tuple, ast.List))
        ):
            return len(inner.elts)
    return None
