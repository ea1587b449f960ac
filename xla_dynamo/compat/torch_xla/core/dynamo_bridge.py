"""torch_xla.core.dynamo_bridge: an FX graph of torch.compile -> a compiled callable.

PyTorch's backends "openxla" (a graph of AOTAutograd) and "openxla_eval" (one of Dynamo) end here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import xla_dynamo
from xla_dynamo.backend import options, pipeline
from xla_dynamo.backend.capture.aot import GraphInfo
from xla_dynamo.backend.executable.by_shape import make_program
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.compat.recording import metrics

Run = Callable[..., Any]


def extract_compiled_graph(xla_model: torch.fx.GraphModule, xla_args: Sequence[Any]) -> Run:
    """The graph compiled as by backend "xla"; `xla_args` are what it is called with first.

    The results come as a list; a graph that returns one tensor gives that tensor.
    """
    metrics.count("DynamoExtractCompiledGraph")
    if _is_lowered(xla_model):
        return _program(xla_model)
    result = xla_model.graph.output_node().args[0]
    if isinstance(result, (tuple, list)):
        return xla_dynamo.xla(xla_model, list(xla_args))
    graph = fx.copy(xla_model.graph)
    graph.output_node().args = ((graph.output_node().args[0],),)
    run = xla_dynamo.xla(torch.fx.GraphModule(xla_model, graph), list(xla_args))
    return lambda *args: run(*args)[0]


# What torch_xla._dynamo.dynamo_backend2 calls it: a backend for torch.compile.
extract_compiled_graph_helper = dynamo_backend = extract_compiled_graph


def _is_lowered(module: torch.fx.GraphModule) -> bool:
    """Whether AOTAutograd made this graph: ops of ATen with the types of their results."""
    calls = [node for node in module.graph.nodes if node.op not in ("placeholder", "output")]
    return all("val" in n.meta for n in calls) and any(
        isinstance(node.target, torch._ops.OpOverload) for node in calls
    )


def _program(module: torch.fx.GraphModule) -> Run:
    chosen = options.parse(None, None)
    target = target_of(chosen, default_platform())
    pipeline.run(Stage.JOINT, module, Context("openxla graph", WayIn.BRIDGE, target))
    names = tuple(node.name for node in fx.placeholders(module.graph))
    info = GraphInfo("openxla graph", "first call", names, frozenset(), _visible(module.graph))
    run = make_program(module, info, chosen, WayIn.BRIDGE)
    return lambda *args: run(list(args))


def _visible(graph: torch.fx.Graph) -> int:
    """How many leading results the user sees: the others are saved for backward.

    If one of those were a view of an argument, as a weight's transpose is, a program of its own
    would copy it before each backward.
    """
    results = len(fx.results(graph))
    described = graph.output_node().meta.get("desc") or ()
    saved = sum(type(each).__name__.startswith("SavedForBackwards") for each in described)
    return results - saved if len(described) == results else results
