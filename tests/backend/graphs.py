"""FX graphs for tests of passes and of what is made of graphs: nothing here is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn


def context(way_in: WayIn = WayIn.COMPILE, **details: Any) -> Context:
    """What a pass is told of a graph for the CPU."""
    return Context("test", way_in, Target("cpu"), **details)


def traced(
    function: Callable[..., Any], *inputs: Any, mode: Literal["fake", "symbolic"] = "fake"
) -> GraphModule:
    """`function` in ATen ops with fake values; with mode="symbolic", sizes are symbols.

    Results are a tuple, as in the graphs of AOTAutograd.
    """

    def listed(*arguments: Any) -> tuple[Any, ...]:
        results = function(*arguments)
        return tuple(results) if isinstance(results, (tuple, list)) else (results,)

    return make_fx(listed, tracing_mode=mode, _allow_non_fake_inputs=True)(*inputs)


def named(graph: Graph, name: str) -> Node:
    """The one node of `graph` with this name."""
    (found,) = (node for node in graph.nodes if node.name == name)
    return found


def ops(graph: Graph) -> list[str]:
    """What `graph` calls, in order: "mul.Tensor"."""
    called = (node.target for node in graph.nodes if node.op == "call_function")
    return [str(op).removeprefix("aten.") for op in called]
