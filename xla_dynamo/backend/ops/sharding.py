"""Ops on shardings of values inside of a partitioned program; rules/sharding.py lowers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from xla_dynamo.errors import NotAvailable

from .registration import op


@op()
def mark_sharding(x: Tensor, sharding: str) -> Tensor:
    """`x`, split over the devices of a partitioned program as an attribute of Shardy says."""
    return x.clone()


@op(fake=lambda x, sharding, shape: x.new_empty(tuple(shape)))
def enter_manual(x: Tensor, sharding: str, shape: Sequence[int]) -> Tensor:
    """The part of `x` that the device has which computes: of that shape, as the sharding says."""
    _refuse("enter_manual")


@op(fake=lambda x, sharding, shape: x.new_empty(tuple(shape)))
def leave_manual(x: Tensor, sharding: str, shape: Sequence[int]) -> Tensor:
    """The tensor of that shape whose parts are each device's `x`."""
    _refuse("leave_manual")


def _refuse(name: str) -> NoReturn:
    raise NotAvailable(
        f"{name} is about the devices of a program in SPMD mode; here it was called on a tensor of "
        "the CPU. Move it to an xla device."
    )


ENTER = torch.ops.xla_dynamo.enter_manual.default
LEAVE = torch.ops.xla_dynamo.leave_manual.default
MARK = torch.ops.xla_dynamo.mark_sharding.default
