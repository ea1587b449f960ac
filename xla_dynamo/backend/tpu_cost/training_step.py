"""Trace a training step of a model that returns its loss, as one FX graph.

The graph holds forward, backward and SGD with momentum; its results replace the parameters, buffers
and momenta that are its arguments. It is compiled to learn what a step costs on a TPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
    """A step as a graph of parameters, buffers, inputs, and a momentum for each parameter.

    aliases: by position of an argument: the position of the result that replaces it.
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
    unsupported.refuse(context.lifted.unsupported)
    return step


def _with_sgd(
    graph: Graph, joint: aot.JointSignature, rate: float, momentum: float
) -> TrainingStep:
    placeholders = fx.placeholders(graph)
    position = {node.name: i for i, node in enumerate(placeholders)}
    results: list[Node] = fx.results(graph)
    aliases: dict[int, int] = {}
    kept: list[Node] = []
    for name, index in joint.buffers.items():
        aliases[position[name]] = len(kept)
        kept.append(results[index])
    kept.append(results[joint.loss])
    for name, index in joint.gradients.items():
        parameter, gradient = placeholders[position[name]], results[index]
        meta = {"val": parameter.meta["val"]}
        velocity = edit.append_placeholder(graph, f"momentum_{name}", meta)
        position[velocity.name] = len(position)
        with graph.inserting_before(graph.output_node()):
            call = partial(edit.call, graph, like=gradient)
            scaled = call(aten.mul.Tensor, velocity, momentum)
            moved = call(aten.add.Tensor, scaled, gradient)
            new = call(aten.sub.Tensor, parameter, call(aten.mul.Tensor, moved, rate))
        for argument, result in ((position[name], new), (position[velocity.name], moved)):
            aliases[argument] = len(kept)
            kept.append(result)
    graph.output_node().args = (tuple(kept),)
    edit.drop_unused(graph)
    return TrainingStep(graph, aliases)
