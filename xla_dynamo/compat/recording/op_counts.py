"""How often each op was launched (torch_xla's counters "xla::add"), from the traces launched."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping
from typing import Any

from xla_dynamo.backend.decompositions.foreach import FOREACH
from xla_dynamo.compat.values.trie import State


def count_ops(traces: Mapping[State, int]) -> collections.Counter[str]:
    """Calls of each op in traces, given by the states at which they end, times their launches."""
    counted: collections.Counter[str] = collections.Counter()
    for end, times in traces.items():
        for name, calls in _ops(end).items():
            counted[name] += calls * times
    return counted


@functools.lru_cache(maxsize=1024)
def _ops(end: State) -> dict[str, int]:
    counted: collections.Counter[str] = collections.Counter()
    for state in end.path():
        func = FOREACH.get(state.op.func)
        counted[_counter(func or state.op.func)] += len(state.outputs) if func else 1
    return dict(counted)


@functools.lru_cache(maxsize=4096)
def _counter(func: Any) -> str:
    return "xla::" + func._schema.name.split("::")[1]
