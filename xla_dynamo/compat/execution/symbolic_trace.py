"""A pending trace as an FX graph whose sizes are symbols, found from traces of other sizes.

Sizes of inputs that changed together are one symbol. An integer that an op takes is an expression
of sizes known so far (see size_formulas), or a symbol of its own. PyTorch infers the rest, as it
does when torch.compile captures a graph; what it has assumed about sizes is part of the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions.matmul_backward import PRODUCT_DECOMPOSITIONS
from xla_dynamo.backend.decompositions.mended import MENDED
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.graph.torch_private import FakeTensorMode, enable_python_dispatcher
from xla_dynamo.backend.passes.static.decompose_unsupported import replace, replace_symbolic
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values.storage import stored
from xla_dynamo.compat.values.trie import State, metas_in
from xla_dynamo.compat.values.values import Meta

from .size_formulas import History, formula, position
from .symbolic_form import SymbolicTrace, Unfit, assumed_by
from .trace_to_fx import Builder
from .window_sizes import Window, with_sizes


def symbolic(
    trace: Trace,
    window: Window,
    live: Sequence[int],
    seen: Sequence[Sequence[int]],
    prepare: Callable[[Graph], None],
) -> SymbolicTrace:
    """The form of the pending trace, a window whose sizes are the last of `seen`.

    prepare: passes that the graph goes through, which may ask what sizes are.

    Raises:
        Unfit: what changes has no form in symbols.
        What PyTorch raises where it cannot infer sizes.
    """
    env = ShapeEnv()
    builder = _SymbolicBuilder(trace, env, list(zip(*seen, strict=True)))
    for state in window.states:
        builder.add(state)
    watch = builder.smallest(live)
    inputs, scalars, seeds = builder.close(live)
    more = builder.append_integers()
    prepare(builder.graph)
    found = SymbolicTrace(
        *(builder.graph, inputs, scalars, seeds, watch, more, builder.symbols),
        *(tuple(builder.formulas), assumed_by(env), env),
    )
    applying = [sizes for sizes in seen if found.applies(sizes)]
    if len(applying) < 2 or not all(map(found.fits, (*applying, seen[-1]))):
        raise Unfit("the windows seen are not of one form")
    return found


class _SymbolicBuilder(Builder):
    """The FX graph of a trace, with `histories` for the sizes of the window.

    symbols: the position of the value of each in these sizes; formulas: of the sizes so far.
    """

    def __init__(self, trace: Trace, env: ShapeEnv, histories: Sequence[History]) -> None:
        self._env, self._histories = env, histories
        self._mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
        self._known: dict[History, torch.SymInt] = {}
        self._static: dict[Meta, torch.Tensor] = {}
        self._size_nodes: dict[Any, Node] = {}
        self._metas: list[Meta] = []  # of the trace's values
        self.symbols: dict[Any, int] = {}
        self.formulas: list[Any] = []
        super().__init__([self._input(value.meta) for value in trace.inputs])

    # Sizes ------------------------------------------------------------------------------------

    def _input(self, of: Meta) -> torch.Tensor:
        return self._empty([self._size(own=True) for _ in of.shape], of)

    def _empty(self, shape: Sequence[Any], of: Meta) -> torch.Tensor:
        with self._mode:
            return torch.empty(list(shape), dtype=stored(of.dtype), device="cpu")

    def _size(self, own: bool = False) -> Any:
        """The next number of the window; own: if it is no known one, it is a symbol."""
        history = self._histories[len(self.formulas)]
        if len(set(history)) == 1:
            self.formulas.append(history[0])
            return history[0]
        found = self._known.get(history) if own else formula(history, self._known)
        if found is None:
            found = self._symbol(history)
        self.formulas.append(found.node.expr)
        self._known.setdefault(history, found)
        return found

    def _choice(self) -> Any:
        """The next integer that only selects; None if it is an input."""
        history = self._histories[len(self.formulas)]
        found: Any = history[0] if len(set(history)) == 1 else position(history, self._known)
        self.formulas.append(found.node.expr if is_symbolic(found) else found)
        return found

    def _symbol(self, history: History) -> torch.SymInt:
        if min(history) < 2:
            raise Unfit("a number that is no size changes")
        context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
        like = torch.empty(history[-1], device="meta", dtype=torch.int8)
        made: Any = self._mode.from_tensor(like, symbolic_context=context).shape[0]
        self.symbols[made.node.expr] = len(self.formulas)
        return made

    def _note_results(self, state: State) -> None:
        """Take down what the sizes of an op's results are."""
        metas = metas_in(state.outputs)
        for node, of in zip(self._values[-len(metas) :] if metas else (), metas, strict=True):
            assert node is not None
            for size in node.meta["val"].shape:
                history = self._histories[len(self.formulas)]
                self.formulas.append(size.node.expr if is_symbolic(size) else size)
                if is_symbolic(size) and len(set(history)) > 1:
                    self._known.setdefault(history, size)
            self._metas.append(of)

    # Nodes ------------------------------------------------------------------------------------

    def add(self, state: State) -> None:
        """Append the op of one state, whose integers are sizes now."""
        super().add(with_sizes(state, iter(self._size, None), self._choice))
        self._note_results(state)

    def _keeps_shape(self, state: State) -> bool:
        return True

    def _fake(self, of: Meta) -> torch.Tensor:
        if of not in self._static:
            self._static[of] = self._empty(of.shape, of)
        return self._static[of]

    def _fake_numbers(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        with self._mode:
            return torch.empty(shape, dtype=dtype, device="cpu")

    def _call(
        self, func: Any, args: Any, outputs: Any, kwargs: Any = None, stays: bool = True
    ) -> Node:
        args, kwargs = pytree.tree_map_only(torch.SymInt, self._size_node, (args, kwargs))
        return super()._call(func, args, outputs, kwargs, stays)

    def _size_node(self, size: torch.SymInt) -> Node:
        expression = size.node.expr
        node = self._size_nodes.get(expression)
        if node is None:
            node = self._size_nodes[expression] = self.graph.call_function(operator.index, (0,))
            node.meta["val"] = size
        return node

    def _value(self, node: Node, outputs: Any) -> Any:
        if not _has_symbols([operand.meta.get("val") for operand in node.all_input_nodes]):
            return self._fakes(outputs)
        op: Any = node.target
        args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        function = PRODUCT_DECOMPOSITIONS.get(op) or MENDED.get(op) or op
        # Kernels in C++ may ask for sizes as numbers, where Python ones do not.
        with self._mode, enable_python_dispatcher():
            found = function(*args, **kwargs)
        return self._row_major(found, outputs)

    def _row_major(self, found: Any, outputs: Any) -> Any:
        if isinstance(found, torch.Tensor) and type(outputs) is Meta:
            return self._empty(found.shape, outputs)
        if isinstance(found, (tuple, list)) and isinstance(outputs, (tuple, list)):
            return tuple(map(self._row_major, found, outputs))
        return None

    def _replace(self, node: Node, function: Callable[..., Any]) -> bool:
        has_symbols = _has_symbols([operand.meta.get("val") for operand in node.all_input_nodes])
        return (replace_symbolic if has_symbols else replace)(self.graph, node, function)

    # The end ----------------------------------------------------------------------------------

    def smallest(self, live: Sequence[int]) -> int:
        """The position of the smallest of the values `live`."""
        return min(range(len(live)), default=0, key=lambda i: self._metas[live[i]].shape.numel())

    def append_integers(self) -> tuple[int, ...]:
        """Make symbols that are the size of no argument arguments; their positions."""
        sizes = [n for node in fx.placeholders(self.graph) for n in _shape(node)]
        given = {n.node.expr for n in sizes if is_symbolic(n)}
        known = {n.node.expr: n for n in self._known.values() if n.node.expr.is_symbol}
        missing = [symbol for symbol in self.symbols if symbol in known and symbol not in given]
        for symbol in missing:
            edit.append_placeholder(self.graph, f"size_{symbol}", {"val": known[symbol]})
        return tuple([self.symbols[symbol] for symbol in missing])


def _has_symbols(values: Any) -> bool:
    return any(map(is_symbolic, _sizes_in(values)))


def _sizes_in(values: Any) -> Iterator[Any]:
    for leaf in pytree.tree_leaves(values):
        yield from leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,)


def _shape(node: Node) -> Sequence[Any]:
    return getattr(node.meta.get("val"), "shape", ())
