"""Train in several processes, a replica each: python -m xla_dynamo run examples/spawn.py

xmp.spawn starts them; each has a device, and its part of the data. xm.optimizer_step averages the
gradients, xm.mesh_reduce brings numbers together.
"""

from __future__ import annotations

import argparse

import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(rank, options):
    torch.manual_seed(0)  # the same parameters in each
    device = xm.xla_device()
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    sampler = DistributedSampler(data, xr.world_size(), rank, drop_last=True)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        right = torch.zeros((), device=device)
        for step, (images, labels) in enumerate(pl.MpDeviceLoader(loader, device)):
            if step == options.steps:
                break
            optimizer.zero_grad()
            scores = model(images)
            F.cross_entropy(scores, labels).backward()
            xm.optimizer_step(optimizer)
            right += (scores.detach().argmax(1) == labels).float().mean()
        steps = min(options.steps, len(loader))
        mean = xm.mesh_reduce("right", right.item() / steps, lambda parts: sum(parts) / len(parts))
        xm.master_print(f"epoch {epoch}, {xr.world_size()} replicas: {mean:.2%} right", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1000, help="at most, in each epoch")
    parser.add_argument("--replicas", type=int, default=2)
    options = parser.parse_args()
    xmp.spawn(train, args=(options,), nprocs=options.replicas, start_method="fork")
