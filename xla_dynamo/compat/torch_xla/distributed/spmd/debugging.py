"""Print where the shards of a tensor are."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.recording import devices


def visualize_tensor_sharding(t: torch.Tensor, **kwargs: Any) -> str:
    """Print and give the device of a tensor."""
    text = f"{devices.real(t.device)}: {list(t.shape)}"
    print(text)
    return text


def visualize_sharding(sharding: str, **kwargs: Any) -> str:
    """Print and give a sharding."""
    print(sharding)
    return sharding
