"""torch_xla.core.dynamo_bridge: an FX graph of torch.compile -> a compiled callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import xla_dynamo


def extract_compiled_graph(
    xla_model: torch.fx.GraphModule, xla_args: Sequence[Any]
) -> Callable[..., Any]:
    """The graph compiled by backend "xla", as torch's "openxla" backends expect it."""
    return xla_dynamo.xla(xla_model, list(xla_args))


extract_compiled_graph_helper = extract_compiled_graph
