"""Deduplicate the outputs of a graph.

One node is one tensor to autograd and to the user: it has one gradient, and `a is b`. A detached
copy is another node and another tensor, though it becomes the same array.
"""

from __future__ import annotations

from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context


def dedupe_outputs(graph: Graph, context: Context) -> bool:
    """Return each tensor once; `context.lifted.outputs` restores the original outputs."""
    results = fx.results(graph)
    keys = [result if isinstance(result, Node) else i for i, result in enumerate(results)]
    kept = list(dict.fromkeys(keys))
    graph.output_node().args = (tuple(results[k] if isinstance(k, int) else k for k in kept),)
    position = {key: i for i, key in enumerate(kept)}
    context.lifted.outputs[:] = [position[key] for key in keys]
    return len(kept) < len(keys)
