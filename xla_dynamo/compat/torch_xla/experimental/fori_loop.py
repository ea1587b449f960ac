"""Loops that run on the host, which reads their condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def fori_loop(lower: Any, upper: Any, body_fun: Callable[..., Any], *input_value: Any) -> Any:
    """What body_fun gives after int(upper) - int(lower) calls, each fed with the last result."""
    values = input_value
    for _ in range(int(lower), int(upper)):
        values = _as_tuple(body_fun(*values))
    return values


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """carried_inputs after body_fn as long as cond_fn is true of them; each test is a barrier."""
    values = tuple(carried_inputs)
    more = tuple(additional_inputs or ())
    while bool(cond_fn(*values, *more)):
        values = _as_tuple(body_fn(*values, *more))
    return values


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (list, tuple)) else (result,)
