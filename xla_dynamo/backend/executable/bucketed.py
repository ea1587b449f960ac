"""Which sizes of a graph are padded to which buckets, and the programs for them.

A symbol of an op that has no padded form gets exact sizes from then on, in all graphs of the
capture, and a warning names the op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch.fx import Graph, Node

from xla_dynamo.backend import metrics
from xla_dynamo.backend.buckets import Buckets
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.backend.passes.padding.equal_sizes import alike, padded_alike, pairs_of
from xla_dynamo.backend.passes.padding.plan import Agreement, Dims, PaddedGraph, Plan, ways
from xla_dynamo.backend.passes.padding.sizes import (
    Refused,
    evaluated,
    largest_sizes,
    symbols_of_shapes,
)
from xla_dynamo.backend.passes.static.specialize import Symbols
from xla_dynamo.bounded import Bounded

from .device_padding import DevicePadding
from .padded_call import PaddedCall, Saved

Run = Callable[[list[Any]], Sequence[Any]]
# Of a call, what is kept is small.
_CALLS = 4096
# Calls with sizes that are their buckets, after which these have a program without masks: random
# sizes seldom come so often, and a program takes seconds to compile.
_RECURRING = 8
Compile = Callable[[Plan, str], tuple[Run, PaddedGraph]]


class Bucketed:
    """The padded programs of one graph."""

    def __init__(
        self,
        graph: Graph,
        symbols: Symbols,
        names: Sequence[str],
        buckets: Buckets,
        agreement: Agreement,
        results: Sequence[str],
        visible: int,
        capacity: int,
        make_call: Callable[..., Any] = PaddedCall,
        there: DevicePadding | None = None,
    ) -> None:
        self._agreement, self._make_call, self._there = agreement, make_call, there
        self._buckets = buckets
        for symbol, at in _sources(graph, symbols).items():  # forward's come before backward's
            agreement.names.setdefault(symbol, names[at])
        self._results, self._visible = results, visible
        self._sources = _sources(graph, symbols)
        self._largest = largest_sizes(graph)
        self._padded_symbols = symbols_of_shapes(graph) & self._sources.keys()
        self._arguments = [node.name for node in fx.placeholders(graph)]
        self._programs: Bounded[Any, tuple[Run, PaddedGraph]] = Bounded(capacity)
        # By the sizes of calls, for what the graphs agreed on then.
        self._calls: Bounded[tuple[int, ...], Any] = Bounded(_CALLS)
        self._agreed = 0, 0
        self._unpadded: set[tuple[int, ...]] = set()  # keys that recur and need no padding
        if agreement.pairs is None:
            agreement.pairs = pairs_of(graph, list(self._sources), visible)
        for pair in agreement.pairs:
            if not self._padded_symbols.isdisjoint(pair):
                self._padded_symbols |= self._sources.keys() & set(pair)

    def known(self, key: tuple[int, ...]) -> Any | None:
        """What `run` or `keep` has for this key."""
        agreed = len(self._agreement.exact), len(self._agreement.saved)
        if self._agreed != agreed:
            self._agreed = agreed
            self.forget_calls()
        return self._calls.get(key)

    def keep(self, key: tuple[int, ...], run: Any) -> None:
        """Have `known` give what the caller made for sizes that are not padded."""
        self._calls[key] = run

    def forget_calls(self) -> None:
        """Look all calls up anew: programs make room, which calls would keep."""
        self._calls.clear()

    def why_exact(self, key: tuple[int, ...]) -> str | None:
        """Why sizes that recur have a program without masks; None for others."""
        if key not in self._unpadded:
            return None
        real = self._real(key)
        sizes = [f"{self._names_of(s)}: {n}" for s, n in real.items() if s in self._padded_symbols]
        return f"{', '.join(sizes)}, which came {_RECURRING} times: no masks"

    def saved(self, key: tuple[int, ...]) -> Saved | None:
        """What undoes the padding of what forward saved; None if it saved nothing so."""
        if key in self._unpadded:
            return None
        real, names = self._real(key), self._saved_names()
        return self._saved(real, self._wanted(real)) if names else None

    def _saved(self, real: Mapping[Any, int], wanted: Mapping[Any, int]) -> Saved:
        same = frozenset(self._alike(real).items())
        return Saved(self._agreement, self._saved_names(), real, wanted, same, self._there)

    def _alike(self, real: Mapping[Any, int]) -> dict[Any, Any]:
        """The same in forward and backward."""
        return alike(self._agreement.pairs or (), real)

    def _saved_names(self) -> dict[int, str]:
        """The arguments that forward may have padded, by position."""
        saved = self._agreement.saved
        return {i: name for i, name in enumerate(self._arguments) if name in saved}

    def run(self, key: tuple[int, ...], compile_for: Compile) -> Any | None:
        """What `make_call` gives for symbols of these values; None if no size is padded."""
        if key in self._unpadded:
            return None
        real = self._real(key)
        wanted = self._wanted(real)
        same = self._alike(real)
        while True:
            exact = {s: n for s, n in real.items() if s not in wanted or s in self._agreement.exact}
            padded = {s: n for s, n in wanted.items() if s not in exact}
            if not padded:
                return None
            layouts = self._layouts(exact, real, same)
            plan = Plan(padded, exact, self._visible, layouts, padded_alike(same, padded))
            try:
                run, graph = self._program(plan, real, same, compile_for)
            except Refused as refused:
                self._give_up(refused, padded)
                continue
            if any(evaluated(n, real) > evaluated(n, padded) for n in graph.sizes):
                return None  # sizes that get smaller when others grow
            saved = self._saved(real, wanted)
            call = self._make_call(run, graph, real, self._visible, saved)
            if all(real[s] == n for s, n in wanted.items()):
                call = Recurring(call, functools.partial(self._needs_no_padding, key))
            self._calls[key] = call
            return call

    def _needs_no_padding(self, key: tuple[int, ...]) -> None:
        self._unpadded.add(key)
        self._calls.pop(key, None)

    def _layouts(
        self, exact: Mapping[Any, int], real: Mapping[Any, int], same: Mapping[Any, Any]
    ) -> dict[str, Dims]:
        """The dimensions of what forward has saved for the same sizes, by name."""
        found: dict[str, Dims] = {}
        for name in self._saved_names().values():
            for (sizes, others), dims in self._agreement.saved[name].items():
                known = (pair for pair in sizes if pair[0] in real)
                if others == frozenset(same.items()) and exact.items() >= set(known):
                    found[name] = dims
        return found

    def _real(self, key: Sequence[int]) -> dict[Any, int]:
        return {symbol: key[at] for symbol, at in self._sources.items()}

    def _wanted(self, real: Mapping[Any, int]) -> dict[Any, int]:
        """The buckets of what may be padded."""
        return {
            s: self._buckets.size(n, self._largest.get(s))
            for s, n in real.items()
            if s in self._padded_symbols and n > 1
        }

    def _program(
        self, plan: Plan, real: Mapping[Any, int], same: Mapping[Any, Any], compile_for: Compile
    ) -> tuple[Run, PaddedGraph]:
        key = (
            tuple(sorted(map(str, plan.exact.items()))),
            tuple(sorted(map(str, plan.buckets.items()))),
            tuple(sorted(map(str, plan.alike.items()))),
        )
        found = self._programs.get(key)
        if found is not None:
            self._programs.move_to_end(key)
        else:
            found = compile_for(plan, self._reason(plan, real))
            if len(self._programs) == self._programs.capacity:
                self.forget_calls()
            self._programs[key] = found
            way = frozenset(plan.exact.items()), frozenset(same.items())
            for name, result in list(zip(self._results, found[1].results, strict=False))[
                self._visible :
            ]:
                if result.dims is not None and any(dim.is_padded for dim in result.dims):
                    self._agreement.saved.setdefault(name, ways())[way] = result.dims
        return found

    def _reason(self, plan: Plan, real: Mapping[Any, int]) -> str:
        """The buckets, by the names of what has these sizes."""
        parts = []
        for symbol, bucket in plan.buckets.items():
            least = self._buckets.smallest_above(bucket, real[symbol])
            parts.append(f"{self._names_of(symbol)}: bucket {bucket} ({least}..{bucket})")
        return ", ".join(parts)

    def _names_of(self, symbol: Any) -> str:
        return self._agreement.names[symbol]

    def _give_up(self, refused: Refused, padded: Mapping[Any, int]) -> None:
        """Give exact sizes to what an op cannot have padded; to all, where that is not known."""
        new = (refused.symbols & padded.keys()) or set(padded)
        self._agreement.exact |= new
        metrics.count("bucket.exact", len(new))
        where = ", ".join(sorted(map(self._names_of, new)))
        node: Node | None = refused.node
        found = location_of(node) if node is not None else None
        op, line = (found.op, f" (at {found})") if found is not None else ("the graph", "")
        metrics.warn_once(
            ("bucket", op, where, refused.reason),
            f"{op}{line} has no padded form: {refused.reason}. Compiled for exact sizes: {where}.",
            metrics.BucketWarning,
        )


class Recurring:
    """A call without padding that says so when it has come several times."""

    cuts: Mapping[int, Any] = MappingProxyType({})  # nothing has padding

    def __init__(self, call: Run, recurs: Callable[[], None]) -> None:
        self._call, self._recurs, self._left = call, recurs, _RECURRING

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        self._left -= 1
        if self._left <= 0:
            self._recurs()
        return self._call(arguments)


def _sources(graph: Graph, symbols: Symbols) -> dict[Any, int]:
    """Where in the key of a call each symbol's value is."""
    placeholders = fx.placeholders(graph)
    found: dict[Any, int] = {}
    for at, (position, dimension) in enumerate(symbols.sources):
        value = placeholders[position].meta["val"]
        size = value if dimension is None else value.shape[dimension]
        if size.node.expr.is_symbol:
            found.setdefault(size.node.expr, at)
    return found
