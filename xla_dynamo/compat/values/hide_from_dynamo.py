"""Keeps Dynamo from tracing the lazy device's kernels, and what they call.

Where a compiled function has a graph break, the op that broke it runs in eager PyTorch, while
Dynamo looks at every new frame of Python. It would compile the kernels of the device one by one,
and jax below them, which then fails.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType

from xla_dynamo.lazily import Waiting

from .torch_private import hide

_HERE = __name__.rpartition(".values.")[0]
# Scripts call these, also from within what is compiled, with functions of their own.
_OF_SCRIPTS = f"{_HERE}.torch_xla"  # and torch_xla_py


def hide_kernels() -> None:
    """Let Dynamo skip the frames of all modules of compat that are loaded, and what they call."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{_HERE}.") and not name.startswith(_OF_SCRIPTS):
            hide_module(module)


def hide_module(module: ModuleType) -> None:
    """Let Dynamo skip the frames of a module, and what they call."""
    for code in _codes_of(module):
        hide(code)


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    """The code of functions that a module defines, and of those within them."""
    members = [member for member in vars(module).values() if not isinstance(member, Waiting)]
    members += [m for each in members if inspect.isclass(each) for m in vars(each).values()]
    for member in members:
        code = getattr(inspect.unwrap(getattr(member, "__func__", member)), "__code__", None)
        if code is not None and code.co_filename == module.__file__:
            yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
