"""scan_layers: layers of one structure, one after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def scan_layers(
    layers: Iterable[torch.nn.Module],
    input_data: Any,
    partition_fn: Any = None,
    is_layer_pure: bool = False,
) -> Any:
    """The output of the last layer, each fed with that of the one before."""
    for layer in layers:
        input_data = layer(input_data)
    return input_data
