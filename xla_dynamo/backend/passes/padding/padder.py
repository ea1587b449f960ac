"""Write the padded form of a graph, op by op: what rules are given.

Values of the padded program hold anything in their padding. An op that mixes elements along a
padded dimension gets them `masked` by a number that changes nothing, or their positions computed
from the sizes of the call (`runtime`), which are arguments of the program.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import edit
from xla_dynamo.backend.graph.torch_private import FakeTensorMode
from xla_dynamo.backend.lowering.registry import Target

from .layouts import Dim, constant, factors_of, plain
from .plan import Plan
from .sizes import (
    Refused,
    Size,
    evaluated,
    expression,
    is_symbolic,
    product,
    symbols_of,
)

aten = torch.ops.aten
Fill = float | Literal["lowest", "highest", "last"]


@dataclass(frozen=True, eq=False)
class Padded:
    """A tensor of the padded program, and where the elements are in it.

    value: the fake tensor, of the padded shape.
    is_number: it is an int for the traced graph.
    """

    node: Node
    dims: tuple[Dim, ...]
    value: torch.Tensor
    is_number: bool = False

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The shape without padding."""
        return tuple(dim.size for dim in self.dims)

    def padded_in(self, dims: Iterable[int]) -> bool:
        """Whether one of these dimensions has padding."""
        return any(self.dims[d].is_padded for d in dims)


class Padder:
    """Makes nodes in `graph` before `node`, the traced op that is being padded."""

    def __init__(self, graph: Graph, plan: Plan, target: Target) -> None:
        self.graph, self.target = graph, target
        self.buckets = plan.buckets
        self._known = {**plan.exact, **plan.alike}
        self.node: Node = next(iter(graph.nodes))
        self.inputs: dict[Node, Any] = {}  # placeholders: their values in the padded program
        self.values: dict[Node, Any] = {}  # of the traced graph: a Padded, a tuple of them
        self.sizes: set[Any] = set()  # all that padded shapes have been made of
        self.numbers: dict[torch.dtype, tuple[Node, list[Any]]] = {}  # more arguments, in order
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._cached: dict[Any, Any] = {}

    # Sizes ------------------------------------------------------------------------------------

    def size(self, value: Any) -> Any:
        """A size as an int, or as an expression of symbols that are padded."""
        return expression(value, self._known)

    def padded(self, size: Size) -> int:
        """What a size is in the padded program."""
        if isinstance(size, int):
            return size
        self.sizes.add(size)
        found = evaluated(size, self.buckets)
        if not isinstance(found, int):
            raise Refused(f"its size {size} depends on data", [size])
        return found

    def runtime(self, number: Any, dtype: torch.dtype = torch.int64) -> Any:
        """What an expression is at a call: a 0-d tensor, int64 or float64. Numbers stay numbers."""
        if not is_symbolic(number):
            return number
        return self._once(("number", number, dtype), lambda: self._number(number, dtype))

    def _number(self, number: Any, dtype: torch.dtype) -> Node:
        if dtype not in self.numbers:
            name = "sizes" if dtype == torch.int64 else "ratios"
            source = edit.append_placeholder(self.graph, name, {"val": None})
            self.numbers[dtype] = source, []
        source, listed = self.numbers[dtype]
        listed.append(number)
        with self._mode:
            self.inputs[source] = torch.empty(len(listed), dtype=dtype, device="cpu")
        return self.emit(aten.select.int, source, 0, len(listed) - 1)

    # Nodes ------------------------------------------------------------------------------------

    def emit(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node; its operands are nodes, or what has become of traced ones."""
        args, kwargs = pytree.tree_map_only(Padded, lambda x: x.node, (args, kwargs))
        values, keywords = map_arg((args, kwargs), self.value)
        if any(map(is_symbolic, pytree.tree_leaves((args, kwargs)))):
            raise Refused("it takes a size as a number")
        with self._mode:
            value = pytree.tree_map_only(torch.Tensor, _row_major, op(*values, **keywords))
        with self.graph.inserting_before(self.node):
            return edit.insert(self.graph, op, args, kwargs, like=self.node, value=value)

    def value(self, node: Node) -> Any:
        """The value of a node of the padded program."""
        return self.inputs[node] if node in self.inputs else node.meta["val"]

    def fake(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """A row-major value for a placeholder."""
        with self._mode:
            return torch.empty(list(shape), dtype=like.dtype, device=like.device)

    def give(self, node: Node, dims: Sequence[Dim]) -> Padded:
        """A new node with its dimensions; they must have the node's shape."""
        wanted = [self.padded(dim.size) for dim in dims]
        shape = list(self.value(node).shape)
        if shape != wanted:
            raise Refused(
                f"its padded shape would be {shape}, not {wanted}", [dim.size for dim in dims]
            )
        node.meta["padded"] = symbols_of(dim.size for dim in dims)
        return Padded(node, tuple(dims), self.value(node))

    def give_all(self, node: Node, dims: Sequence[Sequence[Dim] | None]) -> tuple[Any, ...]:
        """The results of an op that has several."""
        return tuple(
            None if each is None else self.give(self.emit(operator.getitem, node, i), each)
            for i, each in enumerate(dims)
        )

    def outs(self) -> list[Any]:
        """The shapes of the traced op's results without padding; None for one that is none."""
        value = self.node.meta["val"]
        values = value if isinstance(value, (tuple, list)) else [value]
        return [tuple(map(self.size, v.shape)) if _is_tensor(v) else None for v in values]

    def out(self) -> tuple[Size, ...]:
        """The shape of the traced op's only result."""
        return self.outs()[0]

    def again(self, *args: Any) -> Node:
        """The traced op on other operands, all of its schema in order."""
        op: Any = self.node.target
        positional, keywords = [], {}
        for argument, value in zip(op._schema.arguments, args, strict=True):
            if argument.kwarg_only:
                keywords[argument.name] = value
            else:
                positional.append(value)
        return self.emit(op, *positional, **keywords)

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._cached:
            self._cached[key] = make()
        return self._cached[key]

    # Padding ----------------------------------------------------------------------------------

    def positions(self, length: int, device: torch.device) -> Node:
        """0, 1, ... as int64."""
        return self._once(
            ("positions", length, device),
            lambda: self.emit(
                aten.arange.start_step, 0, length, 1, dtype=torch.int64, device=device
            ),
        )

    def valid(self, dim: Dim, device: torch.device) -> Node:
        """Which positions of a dimension are no padding: 1-d bools."""
        return self._once(("valid", dim, device), lambda: self._valid(dim, device))

    def _valid(self, dim: Dim, device: torch.device) -> Node:
        at = self.positions(self.padded(dim.size), device)
        found: Node | None = None
        for digit, factor in self._digits(at, factors_of(dim)):
            if is_symbolic(factor):
                below = self.emit(aten.lt.Tensor, digit, self.runtime(factor))
                found = (
                    below if found is None else self.emit(aten.logical_and.default, found, below)
                )
        assert found is not None
        return found

    def _digits(self, at: Node, factors: Sequence[Size]) -> list[tuple[Node, Size]]:
        """The position along each factor, given that in the padded dimension."""
        stride, digits = 1, []
        for position, factor in reversed(list(enumerate(factors))):
            digit = at if stride == 1 else self.emit(aten.floor_divide.default, at, stride)
            if position:
                digit = self.emit(aten.remainder.Scalar, digit, self.padded(factor))
            digits.append((digit, factor))
            stride *= self.padded(factor)
        return digits[::-1]

    def masked(self, x: Padded, dims: Iterable[int], fill: Fill) -> Padded:
        """`x` with `fill` in the padding of these dimensions."""
        rank = len(x.dims)
        chosen = sorted({d % rank for d in dims if x.dims[d % rank].is_padded})
        if not chosen:
            return x
        x = self.varying(x, chosen)
        key = ("masked", x.node, x.dims, tuple(chosen), fill)
        return self._once(key, lambda: self._masked(x, chosen, fill))

    def mask(self, x: Padded, dims: Sequence[int]) -> Node:
        """Which elements of `x` are no padding of these dimensions; it broadcasts to `x`."""
        found: Node | None = None
        for d in dims:
            valid = self.valid(x.dims[d], x.value.device)
            shape = [1] * len(x.dims)
            shape[d] = x.value.shape[d]
            valid = self.emit(aten.view.default, valid, shape)
            found = valid if found is None else self.emit(aten.logical_and.default, found, valid)
        assert found is not None
        return found

    def _masked(self, x: Padded, dims: Sequence[int], fill: Fill) -> Padded:
        dtype, device = x.value.dtype, x.value.device
        number = fill_of(dtype, fill)
        filled = self.emit(aten.scalar_tensor.default, number, dtype=dtype, device=device)
        return self.give(self.emit(aten.where.self, self.mask(x, dims), x, filled), x.dims)

    # Moving elements --------------------------------------------------------------------------

    def take(self, x: Padded, d: int, at: Node, dim: Dim) -> Padded:
        """The elements of `x` at the positions `at` along `d`, which becomes `dim`."""
        last = x.value.shape[d] - 1
        if last < 0:
            raise Refused("it has no elements")
        at = self.emit(aten.clamp.default, at, 0, last)
        dims = list(x.dims)
        dims[d] = dim
        return self.give(self.emit(aten.index_select.default, x, d, at), dims)

    def plainly(self, x: Padded, dims: Iterable[int] | None = None) -> Padded:
        """`x` with all padding of these dimensions, default all, behind their elements."""
        rank = len(x.dims)
        for d in range(rank) if dims is None else sorted({d % rank for d in dims}):
            x = self.moved(x, d, x.dims[d].plainly())
        return x

    def varying(self, x: Padded, dims: Iterable[int] | None = None) -> Padded:
        """`x`, for an op whose result may differ along dimensions along which `x` does not."""
        rank = len(x.dims)
        for d in range(rank) if dims is None else dims:
            if x.dims[d].factors is None:
                x = self.moved(x, d, x.dims[d].plainly())
        return x

    def moved(self, x: Padded, d: int, dim: Dim) -> Padded:
        """`x` with the layout of `dim` along `d`; `dim` is of the same size at every call."""
        old, dim = x.dims[d], dim.plainly() if dim.factors is None else dim
        if old == dim:
            return x
        length = self.padded(dim.size)
        if old.factors is None and x.value.shape[d] == length:
            dims = list(x.dims)
            dims[d] = dim
            return Padded(x.node, tuple(dims), x.value)
        at = self.positions(length, x.value.device)
        if old.factors is not None:
            at = self.between(at, factors_of(dim), old.factors)
        return self.take(x, d, at, dim)

    def laid_out(self, x: Padded, dims: Sequence[Dim]) -> Padded:
        """`x`, which broadcasts to tensors of these dimensions, in their layout."""
        for d in range(-len(x.dims), 0):
            if x.dims[d].size != 1 and x.dims[d] != dims[d]:
                x = self.moved(x, d % len(x.dims), dims[d])
        return x

    def between(self, at: Node, layout: Sequence[Size], other: Sequence[Size]) -> Node:
        """Where the elements at positions `at` of one layout are in another of the same size."""
        index: Node | None = None
        for position, (digit, _) in enumerate(self._digits(at, layout)):
            scale = self.runtime(product(layout[position + 1 :]))
            term = digit if scale == 1 else self._times(digit, scale)
            index = term if index is None else self.emit(aten.add.Tensor, index, term)
        assert index is not None
        found: Node | None = None
        for position, factor in enumerate(other):
            inner = product(other[position + 1 :])
            digit = index if inner == 1 else self._floor(index, self.runtime(inner))
            if position:
                digit = self._modulo(digit, self.runtime(factor))
            stride = math.prod(self.padded(f) for f in other[position + 1 :])
            term = digit if stride == 1 else self.emit(aten.mul.Tensor, digit, stride)
            found = term if found is None else self.emit(aten.add.Tensor, found, term)
        assert found is not None
        return found

    def _times(self, a: Node, b: Any) -> Node:
        return self.emit(aten.mul.Tensor, a, b)

    def _floor(self, a: Node, b: Any) -> Node:
        return self.emit(aten.floor_divide.default, a, b)

    def _modulo(self, a: Node, b: Any) -> Node:
        op = aten.remainder.Tensor if isinstance(b, Node) else aten.remainder.Scalar
        return self.emit(op, a, b)


def fill_of(dtype: torch.dtype, fill: Fill) -> Any:
    """A fill as a number of a dtype. "last" is what sorts behind everything."""
    if not isinstance(fill, str):
        return fill
    if dtype == torch.bool:
        return fill != "lowest"
    if dtype.is_complex:
        raise Refused("complex numbers have no order")
    if dtype.is_floating_point:
        return {"lowest": -math.inf, "highest": math.inf, "last": math.nan}[fill]
    info = torch.iinfo(dtype)
    return info.min if fill == "lowest" else info.max


def _row_major(value: torch.Tensor) -> torch.Tensor:
    if value.is_contiguous() and not value.is_conj() and not value.is_neg():
        return value
    return torch.empty(value.shape, dtype=value.dtype, device=value.device)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def dims_of(sizes: Sequence[Any]) -> list[Dim]:
    """Plain dimensions of these sizes."""
    return [plain(size) for size in sizes]


def constants(sizes: Sequence[Any]) -> list[Dim]:
    """Dimensions of a tensor whose elements are all the same."""
    return [constant(size) for size in sizes]
