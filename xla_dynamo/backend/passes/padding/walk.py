"""Replace every op of a graph by its padded form."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import edit, fx, rng_keys
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.static.decompose_unsupported import decompose_symbolic
from xla_dynamo.backend.passes.static.specialize import CHECKS, find_symbols
from xla_dynamo.config import config

from . import rules  # noqa: F401  (fills RULES)
from .layouts import Dim
from .padder import Padded, Padder, dims_of
from .plan import PaddedGraph, Plan, Result
from .registry import rule_of
from .rules import pointwise, random
from .sizes import Refused, is_symbolic, symbols_of

# Values of padded programs are row-major, whatever was traced.
_OF_MEMORY = frozenset(
    f"aten.{name}.default"
    for name in (
        *("as_strided", "as_strided_copy", "as_strided_scatter"),
        *("empty_strided", "new_empty_strided", "empty_permuted"),
    )
)


def pad(graph: Graph, plan: Plan, target: Target) -> PaddedGraph:
    """Make `graph` static, in place, with the sizes of `plan.buckets`.

    Raises:
        Refused: an op has no padded form; the graph is broken then.
    """
    p = Padder(graph, plan, target)
    runtime = find_symbols(graph).runtime_ints
    inputs = fx.placeholders(graph)
    arguments = [_argument(p, node, plan, i in runtime) for i, node in enumerate(inputs)]
    traced = _walk(p, graph)
    found = fx.results(graph)
    aliases = _aliases(p, inputs, found[: plan.visible])
    results = [
        (None, aliases[r]) if r in aliases else _result(p, inputs, r, position < plan.visible)
        for position, r in enumerate(found)
    ]
    graph.output_node().args = (tuple(node for node, _ in results),)
    for node, value in p.inputs.items():
        node.meta["val"] = value
    for node in reversed(traced):
        graph.erase_node(node)
    edit.drop_unused(graph)
    described = tuple(result for _, result in results)
    numbers = tuple((dtype, tuple(listed)) for dtype, (_, listed) in p.numbers.items())
    names = tuple(node.name for node in inputs)
    return PaddedGraph(plan, names, tuple(arguments), described, numbers, frozenset(p.sizes))


def _argument(p: Padder, node: Node, plan: Plan, is_runtime_int: bool) -> tuple[Dim, ...] | None:
    """What a placeholder becomes."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        if not fx.is_strided(value):
            raise Refused("an argument is a sparse or a nested tensor")
        dims = plan.layouts.get(node.name) or tuple(dims_of([p.size(n) for n in value.shape]))
        p.inputs[node] = p.fake([p.padded(dim.size) for dim in dims], value)
        p.values[node] = Padded(node, tuple(dims), p.inputs[node])
        return tuple(dims)
    if is_runtime_int:
        p.inputs[node] = p.fake((), torch.empty((), dtype=torch.int64, device="cpu"))
        p.values[node] = Padded(node, (), p.inputs[node], is_number=True)
    else:
        p.values[node] = p.size(value)
        p.inputs[node] = 0
    return None


def _walk(p: Padder, graph: Graph) -> list[Node]:
    """Make the padded form of each op, in order; the traced ops, which nothing needs then."""
    traced, node = [], next(iter(graph.nodes))
    while node.op != "output":
        if node.op == "placeholder":
            node = node.next
            continue
        p.node, before = node, node.prev
        try:
            is_done = _call_or_refuse(p, node)
        except Refused as refused:
            refused.symbols = refused.symbols or _symbols(p, node)
            refused.node = node
            raise
        if is_done:
            traced.append(node)
            node = node.next
        else:  # it has been decomposed
            node = before.next
    p.node = node
    return traced


def _call_or_refuse(p: Padder, node: Node) -> bool:
    """What a rule fails at is refused; in tests, it is an error."""
    try:
        return _call(p, node)
    except Refused:
        raise
    except Exception as error:
        if config().strict:
            raise
        raise Refused(f"its padding rule failed ({type(error).__name__}: {error})") from error


def _symbols(p: Padder, node: Node) -> frozenset[Any]:
    """The symbols in the shapes of an op's operands and results, and in sizes that it takes."""
    taken = [n.meta.get("val") for n in (*node.all_input_nodes, node)]
    found = []
    for value in pytree.tree_leaves((taken, node.args, node.kwargs)):
        is_tensor = isinstance(value, torch.Tensor) and fx.is_strided(value)
        found += [p.size(n) for n in (value.shape if is_tensor else [value])]
    return symbols_of(found)


def _call(p: Padder, node: Node) -> bool:
    """Make what `node` becomes; False if it has been decomposed, into nodes in its place."""
    if node.op != "call_function":
        raise Refused("an attribute of the module is used")
    op: Any = node.target
    value = node.meta.get("val")
    if str(op) in _OF_MEMORY:
        raise Refused("it depends on where elements are in memory")
    if op in CHECKS:
        return True
    if op in edit.IDENTITIES or op is operator.getitem:
        source = p.values.get(node.args[0])  # type: ignore[arg-type]
        p.values[node] = source[node.args[1]] if op is operator.getitem else source  # type: ignore[index]
        return True
    if not isinstance(value, (torch.Tensor, tuple, list)):
        found = p.values[node] = p.size(value)
        if symbols_of([found]) - p.buckets.keys():
            raise Refused("data decide a number")
        return True
    args, kwargs = map_arg((node.args, node.kwargs), p.values.__getitem__)
    args, kwargs = pytree.tree_map(p.size, (args, kwargs))
    if op is rng_keys.call:
        p.values[node] = random.drawn(p, *args, **kwargs)
        return True
    if not _is_padded(p, args, kwargs):
        made = p.emit(op, *args, **kwargs)
        dims = [None if shape is None else dims_of(shape) for shape in p.outs()]
        is_tensor = isinstance(value, torch.Tensor)
        p.values[node] = p.give(made, dims[0] or ()) if is_tensor else p.give_all(made, dims)
        return True
    if op is torch.ops.higher_order.with_effects:
        # A check of values, such as of a factorization's: what is padding passes it.
        made = p.emit(op, *args, **kwargs)
        p.values[node] = p.give_all(made, [s if s is None else dims_of(s) for s in p.outs()])
        return True
    if rng_keys.is_random(node) and rule_of(op) is None:
        raise Refused("it draws from PyTorch's generator")
    rule = rule_of(op) or (pointwise.pointwise if pointwise.is_pointwise(op) else None)
    if rule is not None:
        p.values[node] = rule(p, *_bound(op, args, kwargs))
        return True
    if decompose_symbolic(p.graph, node):
        return False
    raise Refused("it has no padded form")


def _is_padded(p: Padder, args: Any, kwargs: Any) -> bool:
    leaves = pytree.tree_leaves((args, kwargs, p.outs()))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Padded)]
    sizes = [*leaves, *(size for x in tensors for size in x.sizes)]
    return any(map(is_symbolic, sizes)) or any(x.is_number for x in tensors)


def _bound(op: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments of an op's schema, in order."""
    bound = []
    for position, argument in enumerate(op._schema.arguments):
        if position < len(args):
            bound.append(args[position])
        else:
            bound.append(kwargs.get(argument.name, argument.default_value))
    return bound


def _aliases(p: Padder, inputs: list[Node], results: list[Any]) -> dict[Any, Result]:
    """The results that are views of arguments, or of other results, as AOTAutograd knows.

    It makes some anew from their strides and offset in memory: they must be true views.
    """
    found: dict[Any, Result] = {}
    for position, result in enumerate(results):
        node, ops = result, []
        while isinstance(node, Node) and node.op == "call_function":
            is_view = node.target is operator.getitem or fx.gives_views(node.target)
            if not is_view or (ops and node in results and results.index(node) != position):
                break
            others, keywords = map_arg((node.args[1:], node.kwargs), p.values.__getitem__)
            others, keywords = pytree.tree_map(p.size, (others, keywords))
            ops.append((node.target, tuple(others), dict(keywords)))
            node = node.args[0]
        if not ops or not isinstance(node, Node) or not _share_memory(node, result):
            continue
        chain = tuple(reversed(ops))
        if node in inputs:
            found[result] = Result(argument=inputs.index(node), view_ops=chain)
        elif node in results:
            found[result] = Result(result=results.index(node), view_ops=chain)
    return found


def _share_memory(node: Node, other: Node) -> bool:
    values = node.meta["val"], other.meta["val"]
    if not all(isinstance(value, torch.Tensor) for value in values):
        return False
    first, second = (value.untyped_storage()._cdata for value in values)
    return first == second


def _result(p: Padder, inputs: list[Node], result: Any, is_visible: bool) -> tuple[Any, Result]:
    """What the padded program returns for a result, and how the result is made of it.

    An argument that is saved for backward keeps its padding: it would be padded again.
    """
    found = p.values[result] if isinstance(result, Node) else result
    if not isinstance(found, Padded):
        return None, Result(number=found)
    if found.node in inputs and (is_visible or not found.padded_in(range(len(found.dims)))):
        return None, Result(found.dims, argument=inputs.index(found.node))
    strides = tuple(p.size(stride) for stride in result.meta["val"].stride())
    return found.node, Result(found.dims, strides)
