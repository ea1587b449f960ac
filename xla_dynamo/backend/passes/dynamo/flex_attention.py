"""Replace flex_attention, which Dynamo captures with its functions as one node, by its math."""

from __future__ import annotations

from torch.fx import Graph

from xla_dynamo.backend.decompositions.flex_attention import FLEX_ATTENTION, attention
from xla_dynamo.backend.graph.edit import exchange_targets
from xla_dynamo.backend.passes.contract import Context


def expand_flex_attention(graph: Graph, context: Context) -> bool:
    """Exchange the calls in Dynamo's graph: AOTAutograd then traces and differentiates the math."""
    return exchange_targets(graph, {FLEX_ATTENTION: attention})
