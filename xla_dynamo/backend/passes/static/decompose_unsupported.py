"""Decompose nodes whose rule declines their arguments.

AOTAutograd does not decompose an op that has a rule; where the rule does not cover a case (cubic
grid_sample in 3d, say), the ops of its decomposition may still have lowerings.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Hashable
from typing import Any, Literal

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions.flex_attention import scattered
from xla_dynamo.backend.decompositions.table import core, decompositions
from xla_dynamo.backend.graph import edit, fx, rng_keys
from xla_dynamo.backend.graph.torch_private import FakeTensor, enable_python_dispatcher
from xla_dynamo.backend.lowering.bodies import leaf_signature
from xla_dynamo.backend.lowering.nodes import output_values
from xla_dynamo.backend.lowering.unsupported import refused_nodes
from xla_dynamo.backend.ops.registration import COMPOSED
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.bounded import Bounded

from .specialize import drop_identities

aten = torch.ops.aten


def decompose_unsupported(graph: Graph, context: Context) -> bool:
    """Decompose nodes that cannot be lowered; those left are in `context.lifted.unsupported`.

    What eager refuses runs in eager, which raises its error: a decomposition might not.
    """
    found = refused_nodes(graph, context.target, mixes_floats=context.way_in is WayIn.LAZY)
    ours = [node for node, refusal in found.items() if refusal.kind != "eager"]
    changed = sum(decompose(graph, node) for node in ours) > 0
    if changed:
        found = refused_nodes(graph, context.target, mixes_floats=context.way_in is WayIn.LAZY)
    context.lifted.unsupported.update(found)
    return changed


def decompose(graph: Graph, node: Node) -> bool:
    """Replace `node` by its decomposition; False if PyTorch has none."""
    function = _function_of(node.target)
    if function is not None:
        return _replace_if_traceable(graph, node, function)
    decomposition = _decomposition_of(node)
    return decomposition is not None and replace(graph, node, decomposition)


def _decomposition_of(node: Node) -> Callable[..., Any] | None:
    decomposition = core().get(node.target)
    values = [v for v in output_values(node) if isinstance(v, torch.Tensor)]
    # Integer kernels round in their own ways (resizing uint8 images): those stay with eager.
    return decomposition if all(v.is_floating_point() for v in values) else None


def decompose_symbolic(graph: Graph, node: Node) -> bool:
    """Decompose a node whose sizes are symbols; False if PyTorch has no decomposition.

    Also False if that asks what the sizes are: a guard would come too late for Dynamo.
    """
    decomposition = _decomposition_of(node)
    shape_env = _mode_of(node).shape_env
    if decomposition is None or shape_env is None:
        return False
    known = len(shape_env.guards), len(shape_env.replacements)
    try:
        inside = _finished(_trace(node, decomposition).graph)
    except Exception:  # it asks for more than symbols can say
        return False
    if inside is None or known != (len(shape_env.guards), len(shape_env.replacements)):
        return False
    return _put(graph, node, inside)


# The module whose functions define the ops of `quantized_decomposed` by other ops.
_QUANTIZED = "torch.ao.quantization.fx._decomposed"


def _function_of(op: Any) -> Callable[..., Any] | None:
    """The definition of an op of ours, torch.ao, torch.prims or flex_attention by other ops."""
    library = getattr(op, "namespace", "")
    if library == "xla_dynamo":
        return COMPOSED.get(op)
    if library == "prims":
        return getattr(op, "impl_aten", None)
    if library == "quantized_decomposed":
        name, _, overload = str(op).partition(".")[2].partition(".")
        name = name if overload == "default" else f"{name}_{overload}"
        return getattr(sys.modules.get(_QUANTIZED), name, None)
    return scattered if str(op) == "flex_lib.zeros_and_scatter.default" else None


def _replace_if_traceable(graph: Graph, node: Node, function: Callable[..., Any]) -> bool:
    try:
        return replace(graph, node, _functional(function))
    except Exception:  # it reads a scale, for one
        return False


# A function that mutates tensors it has made, as one that does not.
_functional = functools.cache(functools.partial(torch.func.functionalize, remove="mutations"))


def replace(graph: Graph, node: Node, function: Callable[..., Any]) -> bool:
    """Replace `node` by a trace of `function`; False if the trace holds constants."""
    inside = _traced(node, function)
    return inside is not None and _put(graph, node, inside)


def replace_symbolic(graph: Graph, node: Node, function: Callable[..., Any]) -> bool:
    """As `replace`, of a node whose sizes are symbols; what it asks of them becomes a guard."""
    with enable_python_dispatcher():
        inside = _finished(_trace(node, function).graph)
    return inside is not None and _put(graph, node, inside)


def _put(graph: Graph, node: Node, inside: Graph) -> bool:
    results = _inline(graph, node, inside)
    for user in list(node.users):
        if len(results) > 1 or user.target is operator.getitem:
            user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]
            graph.erase_node(user)
    if node.users:
        node.replace_all_uses_with(results[0])
    graph.erase_node(node)
    return True


# The trace of a training step holds the same op with the same shapes a dozen times.
_traces: Bounded[Hashable, Graph | None] = Bounded(4096)


def _traced(node: Node, function: Callable[..., Any]) -> Graph | None:
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    default = torch.get_default_dtype()
    devices = {value.device for value in _tensors(leaves)}
    signatures = tuple(leaf_signature(leaf) for leaf in leaves)
    key = (function, spec, default, frozenset(devices), signatures)
    found: Graph | Literal[False] | None = _traces.get(key, False)
    if found is False:
        found = _traces[key] = _finished(_trace(node, function).graph)
    return found


def _finished(graph: Graph) -> Graph | None:
    """A trace in the form of our graphs; None if it holds constants."""
    _make_views(graph)
    drop_identities(graph)
    constants = any(inner.op == "get_attr" for inner in graph.nodes)
    return None if constants else graph


def _tensors(leaves: list[Any]) -> list[torch.Tensor]:
    values = [leaf.meta["val"] for leaf in leaves if isinstance(leaf, Node)]
    return [value for value in values if isinstance(value, torch.Tensor)]


# In-place views whose functional form has another overload name.
_VIEWS = {aten.transpose_.default: aten.transpose.int}


def _make_views(graph: Graph) -> None:
    """squeeze_ -> squeeze: in a trace, what uses the tensor afterwards uses the op's result."""
    for node in graph.nodes:
        op = node.target
        if isinstance(op, torch._ops.OpOverload) and torch.Tag.inplace_view in op.tags:
            packet = getattr(aten, op._schema.name.removeprefix("aten::").removesuffix("_"), None)
            node.target = _VIEWS.get(op) or getattr(packet, op._overloadname, op)


def _trace(node: Node, decomposition: Callable[..., Any]) -> GraphModule:
    """The decomposition of `node` as a graph of the nodes among its operands."""
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Node)]

    def run(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        result = decomposition(*args, **kwargs)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    with _mode_of(node):  # for the constants that a decomposition makes
        # One object each: make_fx tells tensors apart by identity, and nodes may share a fake.
        fakes = [_fresh(leaves[position].meta["val"]) for position in positions]
        return make_fx(run, decomposition_table=dict(decompositions()))(*fakes)


def _mode_of(node: Node) -> Any:
    """The fake mode of the values of `node` and its operands; else that of its graph."""
    for leaf in pytree.tree_leaves([n.meta.get("val") for n in (node, *node.all_input_nodes)]):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    return rng_keys.fake_mode(node.graph)


def _of(mode: Any) -> Callable[[FakeTensor], torch.Tensor]:
    """A fake as one of `mode`, which is on: that of a trace may be another graph's."""
    return lambda fake: fake if fake.fake_mode is mode else _fresh(fake)


def _fresh(fake: Any) -> Any:
    if not isinstance(fake, torch.Tensor):
        return fake
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def _inline(graph: Graph, node: Node, inside: Graph) -> list[Any]:
    """Copy the nodes of `inside` before `node`; the results."""
    copies: dict[Node, Node] = dict(zip(fx.placeholders(inside), _operands(node), strict=True))
    with graph.inserting_before(node), _mode_of(node) as mode:
        for inner in inside.nodes:
            if inner.op == "call_function":
                copies[inner] = graph.node_copy(inner, copies.__getitem__)
                value = pytree.tree_map_only(FakeTensor, _of(mode), inner.meta["val"])
                copies[inner].meta = {**edit.inherited(node), "val": value}
    return [copies.get(r, r) if isinstance(r, Node) else r for r in fx.results(inside)]


def _operands(node: Node) -> list[Node]:
    return [leaf for leaf in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(leaf, Node)]
