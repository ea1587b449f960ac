"""What torchrun starts in the tests; "fails": rank 1 does; "late": a rank is asked for before."""

from __future__ import annotations

import sys
from typing import Any

import torch

import xla_dynamo.compat  # noqa: F401

import torch_xla  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.runtime as xr  # isort: skip


def train(rank: int) -> None:
    device = torch_xla.device()
    total: Any = xm.all_reduce("sum", torch.full((2,), rank + 1.0).to(device))
    size = xr.world_size()
    assert total.tolist() == [sum(range(1, size + 1))] * 2
    if sys.argv[1:] == ["fails"] and rank == 1:
        raise ZeroDivisionError("only here")
    assert xm.rendezvous("end", bytes([rank])) == [bytes([each]) for each in range(size)]
    print(f"rank {rank} of {size} ended on {device}\n", end="", flush=True)  # of threads, at once


if sys.argv[1:] == ["late"]:
    xr.world_size()
torch_xla.launch(train)
