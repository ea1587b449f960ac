"""Run a graph that was split: its segments and eager ops in turn, on numbered registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import edit, error_origin, fx
from xla_dynamo.backend.graph.host_ops import is_host_step
from xla_dynamo.backend.lowering.unsupported import counter_of

from .partition import Eager, Segment

Run = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Step:
    """`run` takes the registers `inputs` and fills `outputs`; `release` are not used afterwards."""

    run: Run
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    release: tuple[int, ...]


@dataclass
class Schedule:
    """Runs `steps` over the arguments, then picks `results`: (True, register) or (False, value).

    At the positions `duplicates` a result is a tensor that an earlier result is, too: a copy by
    `copy_duplicate` is returned.

    Not frozen: AOTAutograd marks the callables that it is given with attributes.
    """

    registers: int
    steps: Sequence[Step]
    results: Sequence[tuple[bool, Any]]
    duplicates: Sequence[int]
    copy_duplicate: Callable[[Any], Any]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        values = arguments + [None] * (self.registers - len(arguments))
        arguments.clear()
        for step in self.steps:
            outputs = step.run([values[i] for i in step.inputs])
            for register in step.release:
                values[register] = None
            for register, value in zip(step.outputs, outputs, strict=True):
                values[register] = value
        results = [values[item] if held else item for held, item in self.results]
        for position in self.duplicates:
            results[position] = self.copy_duplicate(results[position])
        return results


def build(
    graph: Graph,
    steps: Sequence[Segment | Eager],
    compile_segment: Callable[[Segment], Run],
    module: GraphModule | None = None,
    convert: Callable[[Any], Any] = lambda value: value,
    copy_duplicate: Callable[[Any], Any] = lambda value: value,
) -> Schedule:
    """A schedule of `steps`, into which `graph` was split; `module` holds the graph's attributes.

    `convert` makes the operands of eager ops from what segments return, `copy_duplicate` what is
    returned of a result from the second time on.
    """
    nodes = fx.placeholders(graph)
    runs: list[tuple[Run, Sequence[Node], Sequence[Node]]] = []
    for step in steps:
        if isinstance(step, Segment):
            runs.append((compile_segment(step), step.inputs, step.outputs))
        else:
            inputs = [n for n in step.node.all_input_nodes if n.op != "get_attr"]
            runs.append((_run_eagerly(step.node, inputs, module, convert), inputs, [step.node]))
        nodes.extend(runs[-1][2])
    register = {node: i for i, node in enumerate(nodes)}
    results = fx.results(graph)
    return Schedule(
        len(nodes),
        _with_releases(runs, register, {r for r in results if isinstance(r, Node)}),
        [(True, register[r]) if isinstance(r, Node) else (False, r) for r in results],
        [i for i, r in enumerate(results) if isinstance(r, Node) and r in results[:i]],
        copy_duplicate,
    )


def _with_releases(
    runs: Sequence[tuple[Run, Sequence[Node], Sequence[Node]]],
    register: dict[Node, int],
    results: set[Node],
) -> list[Step]:
    used_later = {register[result] for result in results}
    steps = []
    for run, inputs, outputs in reversed(runs):
        taken = tuple(register[node] for node in inputs)
        release = tuple(set(taken) - used_later)
        used_later.update(taken)
        steps.append(Step(run, taken, tuple(register[node] for node in outputs), release))
    return steps[::-1]


def _run_eagerly(
    node: Node,
    inputs: Sequence[Node],
    module: GraphModule | None,
    convert: Callable[[Any], Any],
) -> Run:
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Node) and leaf.op == "get_attr":
            assert module is not None, f"nothing holds the attribute {leaf}"
            leaves[i] = edit.attribute(module, leaf)
    position = {source: i for i, source in enumerate(inputs)}
    target: Any = node.target
    counter = counter_of(node)
    number = node.meta.get("number")
    # What the host does takes memory as it is.
    declared = [None if is_host_step(node) else node.meta.get("val") for node in inputs]

    def run(values: list[Any]) -> Sequence[Any]:
        if counter:
            metrics.count(counter)
        values = [as_declared(convert(v), d) for v, d in zip(values, declared, strict=True)]
        filled = [values[position[leaf]] if isinstance(leaf, Node) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        try:
            return (target(*args, **kwargs),)
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
