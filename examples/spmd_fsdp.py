"""One program over several devices: python -m xla_dynamo run examples/spmd_fsdp.py

In SPMD mode the parameters, the optimizer's state and the batch are in parts, one on each device,
and XLA inserts the collectives. CPU_NUM_DEVICES makes several devices of a CPU.
"""

from __future__ import annotations

import argparse
import functools
import os

import numpy as np
import torch
from rich.progress import track
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--devices", type=int, default=4)
options = parser.parse_args()
os.environ.setdefault("CPU_NUM_DEVICES", str(options.devices))  # before the first device is used

import torch_xla  # noqa: E402
import torch_xla.distributed.parallel_loader as pl  # noqa: E402
import torch_xla.distributed.spmd as xs  # noqa: E402
import torch_xla.runtime as xr  # noqa: E402
from torch_xla.distributed.fsdp.wrap import size_based_auto_wrap_policy  # noqa: E402
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (  # noqa: E402
    SpmdFullyShardedDataParallel,
)


def batches(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Points of the plane as 16 numbers, and how far from the origin each is."""
    points = torch.randn(steps, 64, 2)
    waves = torch.cat([torch.sin(points * 2**k) for k in range(8)], -1)
    return list(zip(waves, points.norm(dim=-1, keepdim=True), strict=True))


def main() -> None:
    torch.manual_seed(0)
    xr.use_spmd()
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(count), (count, 1), ("fsdp", "model"))
    layers = [nn.Linear(16, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1)]
    model = SpmdFullyShardedDataParallel(
        nn.Sequential(*layers),
        mesh=mesh,
        auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=1000),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = xs.ShardingSpec(mesh, ("fsdp", None))  # each device gets its part of a batch
    loader = pl.MpDeviceLoader(batches(options.steps), torch_xla.device(), input_sharding=rows)

    losses = []
    for x, y in track(loader, "Training", total=options.steps):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    largest = max(model.parameters(), key=torch.numel)
    shards = xs.wrap_if_sharded(largest).local_shards
    print(f"devices           {count}")
    print(f"largest weight    {tuple(largest.shape)}, on each {tuple(shards[0].data.shape)}")
    print(f"loss              {losses[0].item():.3f} at first, {losses[-1].item():.3f} at the end")


if __name__ == "__main__":
    main()
