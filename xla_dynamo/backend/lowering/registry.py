"""The table of JAX rules: aten op -> function of JAX arrays.

A rule has the signature of its op's schema. Tensors arrive as JAX arrays (64-bit types keep their
width), everything else (ints, lists, bools, torch.dtype, None) as in the FX node. It returns an
array, or a tuple with one entry per output of the op (None where an output is undefined, as in
gradients that the output mask excludes). Results are converted to the dtypes that PyTorch's own
shape inference gave, and their shapes are checked against it, so a rule need not convert.

A rule must not read values: it is traced once per combination of shapes and static arguments and
becomes the body of a StableHLO function. It raises `Unsupported(reason)` for arguments it does not
cover; the op then runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Unsupported(Exception):
    """Raised by a rule for arguments that it does not cover; the text is the reason shown."""


@dataclass(frozen=True)
class Rule:
    """How one op becomes XLA: `function` of JAX arrays; `random` rules take a PRNG key first."""

    function: Callable[..., Any]
    random: bool = False


# The JAX platform that a rule is being traced for ("cpu", "tpu", "cuda", ...). Few rules ask.
platform: ContextVar[str] = ContextVar("platform", default="cpu")

RULES: dict[Any, Rule] = {}


def draws(op: Any) -> bool:
    """Whether `op` has a rule that takes a PRNG key."""
    return op in RULES and RULES[op].random


def lower(*ops: Any) -> Callable[[Function], Function]:
    """Register the decorated function as the lowering of each of `ops` (OpOverloads)."""
    return _register(ops, random=False)


def lower_random(*ops: Any) -> Callable[[Function], Function]:
    """Like `lower`, for ops that draw random numbers: the rule's first argument is a key.

    The key is a uint32 array of shape [2], different for each op of a graph and each call.
    """
    return _register(ops, random=True)


def _register(ops: tuple[Any, ...], *, random: bool) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for op in ops:
            if op in RULES:
                raise ValueError(f"{op} has two rules: {RULES[op].function} and {function}")
            RULES[op] = Rule(function, random)
        return function

    return register
