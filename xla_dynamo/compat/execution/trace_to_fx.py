"""Builds the FX graph of a trace, from the path of its states in the trie.

Ops are decomposed as for torch.compile: an op that has a lowering is a node, any other is replaced
by PyTorch's decomposition. Numbers are inputs: one vector for each dtype, of which each op selects
its own.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions import foreach
from xla_dynamo.backend.decompositions.selected import FORMS
from xla_dynamo.backend.decompositions.table import decompositions
from xla_dynamo.backend.graph import edit, error_origin, rng_keys
from xla_dynamo.backend.lowering.registry import draws
from xla_dynamo.backend.passes.static.decompose_unsupported import replace
from xla_dynamo.compat.recording import shape_inference
from xla_dynamo.compat.recording.op_forms import COMPOSITES, scalar_form, without_copy
from xla_dynamo.compat.recording.trace import RESTRIDE
from xla_dynamo.compat.values import describe
from xla_dynamo.compat.values.scalar_inputs import HOLDERS
from xla_dynamo.compat.values.storage import overrides, stored
from xla_dynamo.compat.values.trie import Number, State, metas_in
from xla_dynamo.compat.values.values import Meta, Ref, Value, meta

aten = torch.ops.aten
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}


def build(
    path: Sequence[State], inputs: Sequence[Value], without: Collection[State] = ()
) -> Builder:
    """The ops of a path as an FX graph, each node with its state in its meta.

    without: ops to leave out, and every op that depends on them is one.
    """
    builder = Builder([_fake(value.meta) for value in inputs])
    for state in path:
        if state in without:
            builder.leave_out(state)
            continue
        last = next(iter(reversed(builder.graph.nodes)))
        try:
            builder.add(state)
        except Exception as error:
            error_origin.blame(error, state)
            raise
        while (last := last.next).op != "root":
            last.meta["state"] = state
    return builder


class Builder:
    """An FX graph in the making: a placeholder for each input, number vector and the seeds.

    inputs: the fake tensors of the inputs.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        self.graph = Graph()
        self._inputs = [self._placeholder(f"arg{i}", fake) for i, fake in enumerate(inputs)]
        self._vectors: dict[torch.dtype, tuple[Node, list[int]]] = {
            dtype: (self._placeholder(f"scalars_{str(dtype)[6:]}", None), []) for dtype in _NUMPY
        }
        self._keys = self._placeholder("seeds", None)
        self._seed = 0
        self._values: list[Node | None] = []
        self._numbers: dict[tuple[int, torch.dtype], Node] = {}
        self._stack_trace = ""  # of the state that is being added

    def _placeholder(self, name: str, value: Any) -> Node:
        node = self.graph.placeholder(name)
        if value is not None:
            node.meta["val"] = value
        return node

    def add(self, state: State) -> None:
        """Append the op of one state."""
        op = state.op
        if op is RESTRIDE and self._keeps_shape(state):  # arrays have no strides
            self._values.append(self._node(state.args[0]))
            return
        self._stack_trace = _stack_trace(state)
        key = self._key() if op.random else None
        each = foreach.FOREACH.get(op.func)
        if each is None:
            result = self._emit(op.func, state.args, state.kwargs, state.outputs, key)
            self._name(result, state.outputs)
            return
        # A list op, element by element: XLA fuses what belongs together.
        calls = foreach.calls(each, state.args, len(state.outputs))
        for output, (listed, named) in zip(state.outputs, calls, strict=True):
            self._name(self._emit(each, listed, named | state.kwargs, output), output)

    def _keeps_shape(self, state: State) -> bool:
        """Whether an op that gives other strides gives no other shape."""
        return self._node(state.args[0]).meta["val"].shape == state.outputs.shape

    def leave_out(self, state: State) -> None:
        """Number the results of an op, and its seed, without the op."""
        self._seed += state.op.random
        self._values.extend([None] * len(metas_in(state.outputs)))

    def _name(self, result: Any, outputs: Any) -> None:
        """Number the results of an op as the trace did."""
        if outputs is None:
            return
        if type(outputs) is Meta:
            self._values.append(result)
            return
        for index, output in enumerate(outputs):
            item = result[index] if isinstance(result, (list, tuple)) else None
            if item is None and output is not None:
                item = self._call(operator.getitem, (result, index), output)
            self._name(item, output)

    def _key(self) -> Node:
        index = self._seed
        self._seed += 1
        of = meta(torch.Size([2]), torch.uint32)
        return self._call(aten.select.int, (self._keys, 0, index), of)

    def _arguments(self, func: Any, args: Any, kwargs: Any, outputs: Any) -> tuple[Any, Any]:
        """Refs as nodes, numbers as 0-d tensors."""
        refs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if type(leaf) is Ref]
        dtypes = [self._node(ref).meta["val"].dtype for ref in refs]
        floating = any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)
        floating = floating and without_copy(func) not in FORMS  # indices are integers
        wide = _is_wide(func, dtypes, [m.dtype for m in metas_in(outputs)], floating)

        def node(item: Any) -> Any:
            if type(item) is Ref:
                return self._node(item)
            if type(item) is Number:
                return self._number(item, wide, floating)
            if isinstance(item, (list, tuple)):
                return [node(part) for part in item]
            if type(item) is torch.dtype:
                return stored(item)
            return torch.device("cpu") if type(item) is torch.device else item

        return tuple([node(a) for a in args]), {k: node(v) for k, v in kwargs.items()}

    def _node(self, ref: Ref) -> Node:
        node = self._inputs[ref.index] if ref.meta is not None else self._values[ref.index]
        assert node is not None
        return node

    def _number(self, number: Number, wide: bool, floating: bool) -> Node:
        """A number of the trace as a 0-d tensor: of its own dtype, or of the op's precision."""
        own = number.dtype
        dtype = own if isinstance(own, torch.dtype) else torch.int64
        if own is float or (own is int and floating):
            dtype = torch.float64 if wide else torch.float32
        known = self._numbers.get((number.index, dtype))
        if known is not None:
            return known
        widest = torch.float32 if dtype.is_floating_point else torch.int64
        store = dtype if dtype in _NUMPY else widest
        vector, indices = self._vectors[store]
        scalar = meta(torch.Size([]), store)
        node = self._call(aten.select.int, (vector, 0, len(indices)), scalar)
        indices.append(number.index)
        if store != dtype:
            node = self._converted(node, dtype, meta(torch.Size([]), dtype))
        self._numbers[number.index, dtype] = node
        return node

    def _emit(
        self, func: Any, args: Any, kwargs: Any, outputs: Any, key: Node | None = None
    ) -> Any:
        """Nodes for one op; its result, or the list of its results."""
        args, kwargs = self._arguments(func, args, kwargs, outputs)
        func = without_copy(func)
        form = scalar_form(func, args, kwargs)
        if key is not None and draws(func):
            args, func = (func, 0, key, *args), rng_keys.call
            kwargs = {k: v for k, v in kwargs.items() if k != "generator"}
        function = form or COMPOSITES.get(func) or decompositions().get(func)
        node = self._call(func, args, outputs, kwargs, stays=function is None)
        if function is None:
            return node
        last = node.prev
        items: list[Any] | None = None
        if type(outputs) is not Meta:  # results by number, for replace to find
            items = [
                None if m is None else self._call(operator.getitem, (node, i), m, stays=False)
                for i, m in enumerate(outputs)
            ]
        holder = self.graph.output((items if items is not None else node,))
        replaced = self._replace(node, function)
        result: Any = holder.args[0]
        self.graph.erase_node(holder)
        if replaced and key is not None:
            self._key_inner(last, key)
        if items is None:
            return self._as_stored(result[0], outputs)
        listed: Any = outputs
        return [self._as_stored(r, m) for r, m in zip(result[0], listed, strict=True)]

    def _as_stored(self, node: Any, output: Any) -> Any:
        """The result of a decomposition, in the dtype in which the value is stored."""
        if not isinstance(node, Node) or type(output) is not Meta:
            return node
        dtype = stored(output.dtype)
        return node if node.meta["val"].dtype is dtype else self._converted(node, dtype, output)

    def _converted(self, node: Node, dtype: torch.dtype, output: Meta) -> Node:
        return self._call(aten._to_copy.default, (node,), output, {"dtype": dtype})

    def _key_inner(self, last: Node, key: Node) -> None:
        """Give random ops that a decomposition brought the key of the op."""
        index = 0
        node: Any = last
        while (node := node.next).op != "root":
            if rng_keys.is_random(node) and draws(node.target):
                node.args = (node.target, index, key, *node.args)
                node.target = rng_keys.call
                index += 1

    def _call(
        self, func: Any, args: Any, outputs: Any, kwargs: Any = None, stays: bool = True
    ) -> Node:
        """A new node; stays: it is not replaced by others."""
        node = self.graph.call_function(func, args, kwargs)
        value = self._value(node, outputs) if stays else self._fakes(outputs)
        node.meta = {"val": value, "stack_trace": self._stack_trace}
        return node

    def _value(self, node: Node, outputs: Any) -> Any:
        """The fake value of a new node."""
        return self._fakes(outputs)

    def _fakes(self, outputs: Any) -> Any:
        if type(outputs) is Meta:
            return self._fake(outputs)
        return None if outputs is None else tuple([self._fakes(output) for output in outputs])

    def _fake(self, of: Meta) -> torch.Tensor:
        return _fake(of)

    def _fake_numbers(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """That of numbers, which have this dtype however tensors are stored."""
        return shape_inference.fake(meta(shape, dtype))

    def _replace(self, node: Node, function: Any) -> bool:
        """Replace a node by a trace of `function`; whether that was possible."""
        return replace(self.graph, node, function)

    def close(self, live: Sequence[int]) -> tuple[Any, Any, Any]:
        """End the graph with the values `live` as its results, and drop what they do not need.

        What is left of arguments, in the terms of `execute.Program`: inputs, scalars, seeds.
        """
        graph = self.graph
        graph.output(tuple(self._values[i] for i in live))
        edit.drop_unused(graph)
        inputs = self._used(self._inputs)
        vectors = []
        for dtype, (vector, indices) in self._vectors.items():
            used = tuple([indices[i] for i in self._compact(vector, torch.Size([]), dtype)])
            if used:
                vectors.append((_NUMPY[dtype], used))
        seeds = tuple(self._compact(self._keys, torch.Size([2]), torch.uint32))
        return tuple(inputs), tuple(vectors), seeds

    def _compact(self, vector: Node, item: torch.Size, dtype: torch.dtype) -> list[int]:
        """Keep only the items of an argument that are selected; which those are."""
        selects = sorted(vector.users, key=lambda node: node.args[2])  # type: ignore[arg-type,return-value]
        if not selects:
            self.graph.erase_node(vector)
            return []
        kept: list[int] = []
        for select in selects:
            kept.append(select.args[2])  # type: ignore[arg-type]
            select.args = (vector, 0, len(kept) - 1)
        vector.meta["val"] = self._fake_numbers(torch.Size([len(kept), *item]), dtype)
        return kept

    def elements(self, value: int) -> int:
        """The number of elements of a value."""
        node = self._values[value]
        return node.meta["val"].numel() if node is not None else 0

    def _used(self, nodes: Sequence[Node]) -> list[int]:
        used = [i for i, node in enumerate(nodes) if node.users]
        for node in nodes:
            if not node.users:
                self.graph.erase_node(node)
        return used


def _fake(of: Meta) -> torch.Tensor:
    """The fake tensor of a value as it is stored: row-major."""
    plain = overrides() or of.strides is not None
    return shape_inference.fake(meta(of.shape, stored(of.dtype)) if plain else of)


def _stack_trace(state: State) -> str:
    """The user's line in the form of a traceback, as other passes read it."""
    if state.location is None:
        return ""
    file, function, line = state.location
    text = describe.code_line(state.location)
    return f'  File "{file}", line {line}, in {function}\n    {text}\n'


def _is_wide(
    func: Any, given: Sequence[torch.dtype], outputs: Sequence[torch.dtype], floating: bool
) -> bool:
    """Whether float32 cannot hold the fractions that an op computes with, or gives."""
    if any(dtype in (torch.float64, torch.complex128) for dtype in (*given, *outputs)):
        return True
    if func in HOLDERS and not outputs[0].is_floating_point:
        return True  # nor every integer
    return not floating and torch.get_default_dtype() is torch.float64
