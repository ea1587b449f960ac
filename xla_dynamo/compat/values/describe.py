"""Ops, arguments and source lines as text, for errors, warnings and the reasons of recompiles."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.bookkeeping import optional

from .source_location import Location
from .trie import Number, State, metas_in
from .values import Ref


def op_name(func: Any) -> str:
    """An op as users know it: "aten.view" for aten.view_copy.default, which a view becomes."""
    namespace, name = func._schema.name.split("::")
    if torch.Tag.view_copy in func.tags:
        name = name.removesuffix("_copy")
    overload = func._schema.overload_name
    return f"{namespace}.{name}" + (f".{overload}" if overload else "")


def op_at(state: State) -> str:
    """The op of a state, and the line that first recorded it."""
    return f"{op_name(state.op.func)} at {where(state.location)}"


def where(location: Location | None) -> str:
    """file:line (code)."""
    if location is None:
        return "(no source line)"
    text = code_line(location)
    return f"{location.file}:{location.line}" + (f" ({text})" if text else "")


@optional("")
def code_line(location: Location) -> str:
    """The text of the line; a module's own loader may give it, or fail."""
    return linecache.getline(location.file, location.line).strip()


def show(argument: Any) -> str:
    """An argument of a state as text: inputs with shape and dtype."""
    if type(argument) is Ref:
        return f"{argument!r} {argument.meta}" if argument.meta is not None else repr(argument)
    if type(argument) is Number:
        kind = argument.dtype
        return f"a number ({kind.__name__ if isinstance(kind, type) else str(kind)[6:]})"
    if isinstance(argument, (list, tuple)):
        return "[" + ", ".join(show(item) for item in argument) + "]"
    return str(argument) if isinstance(argument, str) else repr(argument)


def producers(path: Sequence[State]) -> list[State]:
    """The state that computes each value of a trace, by the value's index."""
    return [state for state in path for _ in range(len(metas_in(state.outputs)))]


def two_devices(first: torch.device | str, second: torch.device | str) -> RuntimeError:
    """The error for operands on different devices."""
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}!"
    )
