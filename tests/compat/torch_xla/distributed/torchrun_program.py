"""What torchrun starts in the tests; with an argument, rank 1 fails."""

from __future__ import annotations

import sys

import torch

import xla_dynamo.compat  # noqa: F401

import torch_xla  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.runtime as xr  # isort: skip


def train(rank: int) -> None:
    device = torch_xla.device()
    total = xm.all_reduce("sum", torch.full((2,), rank + 1.0).to(device))
    assert total.tolist() == [3.0, 3.0]
    if sys.argv[1:] and rank == 1:
        raise ZeroDivisionError("only here")
    assert xm.rendezvous("end", bytes([rank])) == [b"\x00", b"\x01"]
    print(f"rank {rank} of {xr.world_size()} ended", flush=True)


torch_xla.launch(train)
