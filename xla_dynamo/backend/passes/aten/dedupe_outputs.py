"""A graph that returns a tensor twice -> one that returns it once.

One node is one tensor to autograd and to the user: it has one gradient, and `a is b`. What was
detached from it is another node and another tensor, though later it is the same array.
"""

from __future__ import annotations

from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context


def dedupe_outputs(graph: Graph, context: Context) -> bool:
    """Have `graph` return each tensor once; `context.lifted.outputs` says where each had been."""
    results = fx.results(graph)
    keys = [result if isinstance(result, Node) else i for i, result in enumerate(results)]
    kept = list(dict.fromkeys(keys))
    graph.output_node().args = (tuple(results[k] if isinstance(k, int) else k for k in kept),)
    position = {key: i for i, key in enumerate(kept)}
    context.lifted.outputs[:] = [position[key] for key in keys]
    return len(kept) < len(keys)
