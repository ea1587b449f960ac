"""The table of aten ops: one `Op` for each overload, made when the overload is first seen.

An op that has a handler, which the module that defines it registers, is passed to the handler; any
other is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from .scalar_inputs import SCALARS

aten = torch.ops.aten

# op, args, kwargs -> result, for ops that are not simply recorded.
Handler = Callable[["Op", Any, Any], Any]


@dataclass(eq=False, slots=True, repr=False)
class Op:
    """One aten overload as the recorder sees it.

    handler: what to call instead of recording.
    scalars: positions (or names) of arguments whose numbers are inputs of the trace.
    random: whether it draws from the device's generator.
    """

    func: Any
    handler: Handler | None
    scalars: Collection[int | str]
    random: bool

    def __repr__(self) -> str:
        return str(self.func)


HANDLERS: dict[Any, Handler] = {}

# By id: an OpOverload hashes in Python, and lives for ever.
OPS: dict[int, Op] = {}


def handles(*funcs: Any) -> Callable[[Handler], Handler]:
    """Register the decorated function as what is called instead of recording `funcs`."""

    def register(handler: Handler) -> Handler:
        for func in funcs:
            HANDLERS[func] = handler
            OPS.pop(id(func), None)
        return handler

    return register


def op_of(func: Any) -> Op:
    """The `Op` of an overload."""
    found = OPS.get(id(func))
    if found is None:
        random = torch.Tag.nondeterministic_seeded in func.tags
        found = Op(func, HANDLERS.get(func), SCALARS.get(func, ()), random)
        OPS[id(func)] = found
    return found
