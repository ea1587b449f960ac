"""DistributedDataParallel, as on GPUs: XLA_DYNAMO_COMPAT=1 torchrun --nproc-per-node 2 \
examples/data_parallel.py

The backend "xla" of torch.distributed connects what torchrun has started. Nothing else is of XLA
but the device, and the barrier at the end of a step.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.distributed.xla_backend  # makes the backend known
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1000, help="at most, in each epoch")
    options = parser.parse_args()

    dist.init_process_group("xla", init_method="xla://")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # DDP gives all the parameters of rank 0
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=64 // size, sampler=sampler, drop_last=True)
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(layers.to("xla"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        right = torch.zeros((), device="xla")
        for step, (images, labels) in enumerate(loader):
            if step == options.steps:
                break
            images, labels = images.to("xla"), labels.to("xla")
            optimizer.zero_grad()
            scores = model(images)
            F.cross_entropy(scores, labels).backward()
            optimizer.step()
            right += (scores.detach().argmax(1) == labels).float().mean()
            torch_xla.sync()
        dist.all_reduce(right)
        # Read by all, not by rank 0 alone: what is read runs then, and all have to run it.
        mean = right.item() / size / min(options.steps, len(loader))
        if rank == 0:
            print(f"epoch {epoch}, {size} processes: {mean:.2%} right", flush=True)

    weights = [None] * size
    dist.all_gather_object(weights, model.module[0].weight.tolist())
    if rank == 0:
        print(f"all have the same weights: {all(each == weights[0] for each in weights)}")


if __name__ == "__main__":
    main()
