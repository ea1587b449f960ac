"""torch_xla._dynamo.dynamo_bridge: torch_xla.core.dynamo_bridge."""

from __future__ import annotations

from xla_dynamo.compat.torch_xla.core.dynamo_bridge import (
    extract_compiled_graph as extract_compiled_graph,
)
from xla_dynamo.compat.torch_xla.core.dynamo_bridge import (
    extract_compiled_graph_helper as extract_compiled_graph_helper,
)
