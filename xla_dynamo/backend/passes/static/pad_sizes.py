"""Give a graph the sizes of buckets: options={"bucket": ...}.

No size is dynamic for XLA. Padding holds anything, and never reaches an element that counts:
see passes/padding.
"""

from __future__ import annotations

from torch.fx import Graph

from xla_dynamo.backend.passes.contract import Context
from xla_dynamo.backend.passes.padding.walk import pad


def pad_sizes(graph: Graph, context: Context) -> bool:
    """Make the graph static, for `context.padding`; what it takes then is in `context.lifted`.

    Raises:
        Refused: an op has no padded form.
    """
    if context.padding is None:
        return False
    context.lifted.padded = pad(graph, context.padding, context.target)
    return True
