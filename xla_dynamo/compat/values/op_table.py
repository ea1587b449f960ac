"""The table of aten ops: one `Op` for each overload, made when the overload is first seen.

An op that has a handler, which the module that defines it registers, is passed to the handler; any
other is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from xla_dynamo.lazily import lazily

from .scalar_inputs import SCALARS

if TYPE_CHECKING:
    from xla_dynamo.backend.ops import collectives
else:
    collectives = lazily("xla_dynamo.backend.ops.collectives", globals())

aten = torch.ops.aten

# op, args, kwargs -> result, for ops that are not simply recorded.
Handler = Callable[["Op", Any, Any], Any]


@dataclass(eq=False, slots=True, repr=False)
class Op:
    """One aten overload as the recorder sees it.

    handler: what to call instead of recording.
    scalars: positions (or names) of arguments whose numbers are inputs of the trace.
    random: whether it draws from the device's generator.
    collective: whether it is one among replicas.
    """

    func: Any
    handler: Handler | None
    scalars: Collection[int | str]
    random: bool
    collective: bool

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


def _is_collective(func: Any) -> bool:
    if func.namespace == "_c10d_functional":  # PyTorch's, which become ours
        name = func._schema.name.partition("::")[2]
        return name.startswith(("all_", "reduce_scatter", "broadcast"))
    return func.namespace == "xla_dynamo" and func in collectives.COLLECTIVES


def op_of(func: Any) -> Op:
    """The `Op` of an overload."""
    found = OPS.get(id(func))
    if found is None:
        random = torch.Tag.nondeterministic_seeded in func.tags
        handler, scalars = HANDLERS.get(func), SCALARS.get(func, ())
        found = Op(func, handler, scalars, random, _is_collective(func))
        OPS[id(func)] = found
    return found
