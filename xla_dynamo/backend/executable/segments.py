"""Steps over numbered registers: how a graph that is split runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import error_origin, fx
from xla_dynamo.backend.graph.host_ops import is_host_step
from xla_dynamo.backend.lowering.unsupported import counter_of

from .partition import Eager, Segment

Run = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Step:
    """`run` takes the values of registers `inputs` and fills `outputs`; `release` are done with."""

    run: Run
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    release: tuple[int, ...]


@dataclass
class Plan:
    """Runs `steps` over the arguments, then picks `results`: (True, register) or (False, value).

    A tensor that is a result before is given as what `again` makes of it, at the places `repeats`.

    Not frozen: AOTAutograd marks the callables that it is given with attributes.
    """

    registers: int
    steps: tuple[Step, ...]
    results: tuple[tuple[bool, Any], ...]
    repeats: tuple[int, ...]
    again: Callable[[Any], Any]

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
        for place in self.repeats:
            results[place] = self.again(results[place])
        return results


def build(
    graph: Graph,
    steps: Sequence[Segment | Eager],
    compile_segment: Callable[[Segment], Run],
    constant: Callable[[Node], Any],
    convert: Callable[[Any], Any] = lambda value: value,
    again: Callable[[Any], Any] = lambda value: value,
) -> Plan:
    """A plan that runs `steps` of `graph`; `constant` gives the value of a get_attr node.

    `convert` makes what eager ops take of the values that segments give, `again` what is returned
    of a result from the second time on.
    """
    nodes = fx.placeholders(graph)
    runs: list[tuple[Run, list[Node], list[Node]]] = []
    for step in steps:
        if isinstance(step, Segment):
            run = compile_segment(step)
            inputs, outputs = list(step.inputs), list(step.outputs)
        else:
            inputs = [n for n in step.node.all_input_nodes if n.op != "get_attr"]
            run, outputs = _run_eagerly(step.node, inputs, constant, convert), [step.node]
        runs.append((run, inputs, outputs))
        nodes.extend(outputs)
    register = {node: i for i, node in enumerate(nodes)}
    results = fx.results(graph)
    first = {r: i for i, r in reversed(list(enumerate(results))) if isinstance(r, Node)}
    kept = {register[r] for r in first}
    return Plan(
        len(nodes),
        tuple(_with_releases(runs, register, kept)),
        tuple((True, register[r]) if isinstance(r, Node) else (False, r) for r in results),
        tuple(i for i, r in enumerate(results) if isinstance(r, Node) and first[r] < i),
        again,
    )


def _with_releases(
    runs: Sequence[tuple[Run, list[Node], list[Node]]], register: dict[Node, int], kept: set[int]
) -> list[Step]:
    seen = set(kept)
    steps = []
    for run, inputs, outputs in reversed(runs):
        taken = tuple(register[node] for node in inputs)
        last_use = tuple({i for i in taken if i not in seen})
        seen.update(taken)
        steps.append(Step(run, taken, tuple(register[node] for node in outputs), last_use))
    return steps[::-1]


def _run_eagerly(
    node: Node,
    inputs: Sequence[Node],
    constant: Callable[[Node], Any],
    convert: Callable[[Any], Any],
) -> Run:
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    position = {source: i for i, source in enumerate(inputs)}
    target: Any = node.target
    is_step = is_host_step(node)
    counter = counter_of(node)
    number = node.meta.get("number")
    # A step of the host takes memory as it is.
    declared = [None if is_step else node.meta.get("val") for node in inputs]

    def run(values: list[Any]) -> Sequence[Any]:
        if counter:
            metrics.count(counter)
        values = [as_declared(convert(v), d) for v, d in zip(values, declared, strict=True)]
        filled = [
            leaf
            if not isinstance(leaf, Node)
            else constant(leaf)
            if leaf.op == "get_attr"
            else values[position[leaf]]
            for leaf in leaves
        ]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        try:
            return (target(*args, **kwargs),)
        except Exception as error:
            error_origin.blame(error, number)
            raise

    return run


def as_declared(value: Any, declared: Any) -> Any:
    """`value` with the strides that were traced: eager's views depend on them.

    What XLA computes is row-major where eager's result may be transposed in memory.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(declared, torch.Tensor):
        return value
    if value.layout is not torch.strided or any(not isinstance(s, int) for s in declared.stride()):
        return value
    if value.stride() == declared.stride() or value.shape != declared.shape:
        return value
    size, stride = declared.shape, declared.stride()
    if 0 in stride:  # expanded: its elements share memory, and no view depends on it
        return value
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device).copy_(value)
