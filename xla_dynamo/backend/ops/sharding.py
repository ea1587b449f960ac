"""The op by which a value inside of a program gets a sharding; rules/sharding.py lowers it."""

from __future__ import annotations

import torch
from torch import Tensor

from .registration import op


@op()
def mark_sharding(x: Tensor, sharding: str) -> Tensor:
    """`x`, split over the devices of a partitioned program as an attribute of Shardy says."""
    return x.clone()


MARK = torch.ops.xla_dynamo.mark_sharding.default
