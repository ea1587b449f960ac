"""A model that returns its loss -> one FX graph of a whole training step.

Forward, backward and SGD with momentum, with parameters, buffers and momenta as arguments that
the results replace. It is what is compiled for a device that is not here, to learn what a step
costs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend import pipeline
from xla_dynamo.backend.capture import aot
from xla_dynamo.backend.decompositions.table import traced_decompositions
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.passes.contract import Context, Stage

aten = torch.ops.aten


@dataclass(frozen=True)
class TrainingStep:
    """A step as a graph: arguments are parameters, buffers, momenta (one each parameter), inputs.

    aliases: argument position -> position of the result that replaces it.
    """

    graph: Graph
    aliases: Mapping[int, int]


def trace(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    context: Context,
    *,
    learning_rate: float = 0.1,
    momentum: float = 0.9,
) -> TrainingStep:
    """Trace one step of `model(*inputs)`, which must return a scalar loss, up to its lowering.

    Shapes and dtypes are those of the parameters and inputs given; values are not read.

    Raises:
        UnsupportedOp: an op cannot be lowered.
    """
    module, signature = aot.export_joint(
        model,
        inputs,
        traced_decompositions(),
        lambda captured: pipeline.run(Stage.DYNAMO, captured, context),
    )
    pipeline.run(Stage.JOINT, module, context)
    step = _with_sgd(module.graph, signature, learning_rate, momentum)
    pipeline.run(Stage.ATEN, module, context)
    pipeline.run(Stage.STATIC, module.graph, context)
    for node, refusal in context.lifted.unsupported.items():
        raise unsupported.error_of(node, refusal, falls_back=False)
    return step


def _with_sgd(
    graph: Graph, joint: aot.JointSignature, rate: float, momentum: float
) -> TrainingStep:
    placeholders = fx.placeholders(graph)
    position = {node.name: i for i, node in enumerate(placeholders)}
    output = graph.output_node()
    results: list[Node] = fx.results(graph)
    aliases: dict[int, int] = {}
    kept: list[Node] = []
    for name, index in joint.buffers.items():
        aliases[position[name]] = len(kept)
        kept.append(results[index])
    kept.append(results[joint.loss])
    last = placeholders[-1]
    for name, index in joint.gradients.items():
        parameter, gradient = placeholders[position[name]], results[index]
        with graph.inserting_after(last):
            velocity = last = _with_value(graph.placeholder(f"momentum_{name}"), parameter)
        position[velocity.name] = len(position)
        with graph.inserting_before(output):
            scaled = _scale(graph, velocity, momentum)
            moved = _with_value(graph.call_function(aten.add.Tensor, (scaled, gradient)), parameter)
            step = _scale(graph, moved, rate)
            new = _with_value(graph.call_function(aten.sub.Tensor, (parameter, step)), parameter)
        for argument, result in ((position[name], new), (position[velocity.name], moved)):
            aliases[argument] = len(kept)
            kept.append(result)
    output.args = (tuple(kept),)
    edit.drop_unused(graph)
    return TrainingStep(graph, aliases)


def _scale(graph: Graph, node: Node, factor: float) -> Node:
    return _with_value(graph.call_function(aten.mul.Tensor, (node, factor)), node)


def _with_value(node: Node, like: Node) -> Node:
    node.meta["val"] = like.meta["val"]
    return node
