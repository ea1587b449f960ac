"""Where a trace ends that no barrier ends: after each op in eager mode, or when it grows too long.

A loop without barriers would be one program of its whole run. It is cut at a whole number of its
passes, so that what follows is the same trace again, which is compiled once. Ordinary steps do not
repeat themselves like that: layers do, but within a call of a module, and what adds up gradients of
several batches. No trace grows beyond `MOST` values, which is torch_xla's bound.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch import nn

from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.source_location import user_location
from xla_dynamo.compat.values.trie import State, metas_in

# Values at which a trace is first looked at: any, and one that follows one cut by itself.
FIRST_LOOK, NEXT_LOOK = 2_048, 512
# Steps that add up gradients may have so many values, and any traces so many. With AdamW, a step of
# GPT-2 (12 layers) has 3,300, of 8 batches 18,300, one of Llama with 80 layers 19,300.
LONG, MOST = 32_768, 100_000


@dataclass
class Policy:
    """What traces of all devices do.

    each_op: whether they end after each op.
    after_op, when_full: cut a trace; a module that knows how to sets them.
    on_host: the values of an op that is called with what grows, or NotImplemented; likewise.
    """

    each_op: bool = False
    after_op: Callable[[Any], object] = bool
    when_full: Callable[[Any], object] = bool
    on_host: Callable[[Any, Op, Any, Any], Any] = lambda *_: NotImplemented


policy = Policy()


def look(path: Sequence[State], op: Op, values: int, follows: bool) -> int:
    """How many values a trace of `values` may have when it is looked at again; `values`: it ends.

    path: its states; op: what is recorded next. follows: whether the trace follows one that was
    cut by itself, in the same loop.
    """
    if values >= MOST:
        return values
    if _in_module():
        return values + 1
    twice = min(2 * values, MOST)
    passed = period([*((state.op, state.location) for state in path), (op, user_location())])
    if passed is None:
        return twice
    if not follows:
        return twice if values < LONG and _adds_up_gradients(path[-passed:]) else values
    missing = -len(path) % passed
    following = path[len(path) - passed :][:missing]  # as in the pass before
    return values + sum(len(metas_in(state.outputs)) for state in following)


def _adds_up_gradients(states: Sequence[State]) -> bool:
    """Whether a pass of a loop differentiates, but updates no list of parameters."""
    names = [state.op.func._schema.name for state in states]
    return any("backward" in name for name in names) and not any("_foreach" in n for n in names)


def _in_module() -> bool:
    """Whether the op that is being recorded is in a call of a module."""
    call = nn.Module.__call__.__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is call:
            return True
        frame = frame.f_back
    return False


def period(items: Sequence[Hashable]) -> int | None:
    """The least number of items after which they repeat, if the last three quarters do so thrice.

    >>> period("setup" + 5 * "step")
    4
    """
    numbers: dict[Hashable, int] = {}
    last = [numbers.setdefault(item, len(numbers)) for item in items[len(items) // 4 :]]
    borders, border = [0], 0  # Knuth, Morris, Pratt: the longest border of each beginning
    for item in last[1:]:
        while border and item != last[border]:
            border = borders[border - 1]
        border += item == last[border]
        borders.append(border)
    least = len(last) - border
    return least if 0 < 3 * least <= len(last) else None
