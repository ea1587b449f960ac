"""The table of padding rules: op -> function that makes its padded form.

A rule gets the `Padder`, and the arguments of the op's schema in order, defaults included: tensors
as `Padded`, sizes as ints or expressions, everything else as it is. It returns a `Padded`, or a
tuple of them, None where the op gives nothing; or it raises `Refused`. It is asked only where an
operand or a result is padded, or a size is an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Rule = Callable[..., Any]
Function = TypeVar("Function", bound=Rule)
RULES: dict[Any, Rule] = {}  # by op, or by the name of an op that is defined later


def pads(*ops: Any) -> Callable[[Function], Function]:
    """Register the decorated function as the padding rule of each of `ops`."""

    def register(function: Function) -> Function:
        for op in ops:
            if op in RULES:
                raise ValueError(f"{op} has two padding rules: {RULES[op]} and {function}")
            RULES[op] = function
        return function

    return register


def rule_of(op: Any) -> Rule | None:
    """The padding rule of an op, if it has one."""
    return RULES.get(op) or RULES.get(str(op))
