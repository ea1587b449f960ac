"""Exchange calls that AOTAutograd traces or differentiates wrongly for ours.

multi_margin_loss, multilabel_margin_loss: PyTorch's decompositions are wrong at their kinks.
one_hot: its decomposition gives other strides than eager's kernel.
"""

from __future__ import annotations

import torch
from torch.fx import Graph

from xla_dynamo.backend.decompositions.eager_layout import one_hot
from xla_dynamo.backend.decompositions.margin_losses import MARGIN_CALLS
from xla_dynamo.backend.graph.edit import exchange_targets
from xla_dynamo.backend.passes.contract import Context


def keep_one_hot_layout(graph: Graph, context: Context) -> bool:
    """Give one_hot's result eager's memory layout."""
    return exchange_targets(graph, {torch.nn.functional.one_hot: one_hot})


def mend_margin_losses(graph: Graph, context: Context) -> bool:
    """Exchange the margin losses in Dynamo's graph."""
    return exchange_targets(graph, MARGIN_CALLS)
