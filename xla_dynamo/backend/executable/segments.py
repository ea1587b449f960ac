"""Run a graph that was split: a graph of its own calls the segments and the other steps in turn.

FX's generated code drops each value after its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import error_origin, fx
from xla_dynamo.backend.graph.host_ops import is_host_step
from xla_dynamo.backend.lowering.unsupported import counter_of

from .partition import Segment, call_of
from .turns import Name

Run = Callable[[list[Any]], Sequence[Any]]


def build(
    graph: Graph,
    steps: Sequence[Segment | Node],
    compile_segment: Callable[[Segment], Run],
    module: GraphModule | None = None,
    convert: Callable[[Any], Any] = lambda value: value,
    copy_duplicate: Callable[[Any], Any] | None = None,
    kernels: Mapping[Node, Callable[..., Any]] = MappingProxyType({}),
    strided: Collection[Any] = (),
) -> Run:
    """What runs the graph that `connect` makes; it clears its list of arguments."""
    given = convert, copy_duplicate, kernels, strided
    calls, _ = connect(graph, steps, compile_segment, *given)
    return runner(calls, module)


def runner(calls: Graph, module: GraphModule | None = None) -> Run:
    """What runs a graph of calls; `module` holds the attributes that it names."""
    return as_function(GraphModule(module or {}, calls).forward)


def connect(
    graph: Graph,
    steps: Sequence[Segment | Node],
    compile_segment: Callable[[Segment], Run],
    convert: Callable[[Any], Any] = lambda value: value,
    copy_duplicate: Callable[[Any], Any] | None = None,
    kernels: Mapping[Node, Callable[..., Any]] = MappingProxyType({}),
    strided: Collection[Any] = (),
) -> tuple[Graph, dict[Any, Name]]:
    """A graph that calls the `steps` into which `graph` was split, and names for its functions.

    It takes a list. What an op does that runs in eager has no name, nor has a kernel.

    convert: makes the operands of eager ops from what segments return.
    copy_duplicate: makes what is returned of a result from the second time on.
    kernels: what runs steps that take values as they are, and in memory as they are.
    strided: the results that have the strides that were traced.
    """
    names: dict[Any, Name] = {operator.getitem: ("item",)}
    calls = Graph()
    arguments = calls.placeholder("arguments")
    values = {node: calls.call_method("pop", (arguments, 0)) for node in fx.placeholders(graph)}

    def operand(source: Node) -> Node:
        if source.op == "get_attr":
            return calls.node_copy(source)
        return calls.call_function(_prepare(source, convert), (values[source],))

    for step in steps:
        if isinstance(step, Segment):
            inputs = [values[node] for node in step.inputs]
            run = as_function(compile_segment(step))
            names[run] = ("program", step.index)
            results = calls.call_function(run, (inputs,))
            for at, node in enumerate(step.outputs):
                values[node] = calls.call_function(operator.getitem, (results, at))
        elif call_of(step) in kernels:
            run = kernels.get(step, operator.getitem)
            args, kwargs = map_arg((step.args, step.kwargs), values.__getitem__)
            values[step] = calls.call_function(run, args, kwargs)
        else:
            args, kwargs = map_arg((step.args, step.kwargs), operand)
            values[step] = calls.call_function(_run_eagerly(step), args, kwargs)
    returned: list[Any] = []
    for result in fx.results(graph):
        value = values[result] if isinstance(result, Node) else result
        if result in strided and isinstance(result, Node) and call_of(result) in kernels:
            declared = result.meta.get("val")
            restride = restrided(declared)
            if isinstance(declared, torch.Tensor):
                names[restride] = ("strides", tuple(declared.shape), declared.stride())
            value = calls.call_function(restride, (value,))
        if copy_duplicate and isinstance(value, Node) and value in returned:
            names[copy_duplicate] = ("copy", copy_duplicate.__name__)
            value = calls.call_function(copy_duplicate, (value,))
        returned.append(value)
    calls.output(returned)
    return calls, names


def as_function(run: Run) -> Run:
    """`run` as a function: FX calls nothing else, and AOTAutograd marks what it is given."""

    def call(values: list[Any]) -> Sequence[Any]:
        return run(values)

    return call


def restrided(declared: Any) -> Callable[[Any], Any]:
    """Gives values the strides of one that was traced."""
    return lambda value: as_declared(value, declared)


def _prepare(source: Node, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # What the host has made is in memory as it should be.
    declared = None if is_host_step(source) else source.meta.get("val")

    def prepare(value: Any) -> Any:
        return as_declared(convert(value), declared)

    return prepare


def _run_eagerly(node: Node) -> Callable[..., Any]:
    target: Any = node.target
    counter, number = counter_of(node), node.meta.get("number")

    def run(*args: Any, **kwargs: Any) -> Any:
        if counter:
            metrics.count(counter)
        try:
            return target(*args, **kwargs)
        except Exception as error:
            error_origin.blame(error, number)
            raise

    return run


def as_declared(value: Any, declared: Any) -> Any:
    """`value` with the strides that were traced, on which eager's views depend.

    XLA computes row-major arrays where eager's result may be transposed in memory.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(declared, torch.Tensor):
        return value
    if value.layout is not torch.strided or any(not isinstance(s, int) for s in declared.stride()):
        return value
    if value.stride() == declared.stride() or value.shape != declared.shape:
        return value
    if 0 in declared.stride():  # expanded: its elements share memory, and no view depends on it
        return value
    return value.new_empty_strided(declared.shape, declared.stride()).copy_(value)
