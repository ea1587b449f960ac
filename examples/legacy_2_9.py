"""A script for torch_xla 2.9, unchanged: python -m xla_dynamo run examples/legacy_2_9.py

torch_xla.step() makes a program of what is inside; MpDeviceLoader uploads batches ahead.
"""

from __future__ import annotations

import argparse
import itertools

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met  # pyright: ignore[reportMissingImports]
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from rich.progress import track
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def train(index, options):
    torch.manual_seed(0)
    device = torch_xla.device()
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(images.float().reshape(-1, 1, 8, 8) / 16, labels)
    train_set, test_set = random_split(data, [1440, 357])
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)

    batches = pl.MpDeviceLoader(loader, device)
    again = itertools.chain.from_iterable(itertools.repeat(batches))
    for _, (images, labels) in zip(track(range(options.steps), "Training"), again, strict=False):
        with torch_xla.step(), torch.autocast("xla", torch.bfloat16, options.bfloat16):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()

    model.eval()
    images, labels = (part.to(device) for part in test_set[:])
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean()
    torch_xla.sync()
    xm.master_print(f"device    {device}: {xr.device_type()}")
    xm.master_print(f"programs  {met.counter_value('UncachedCompile')}, for {options.steps} steps")
    xm.master_print(f"right     {right.item():.2%} of {len(labels)} images")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=225)
    parser.add_argument("--bfloat16", action="store_true", help="compute in bfloat16")
    torch_xla.launch(train, args=(parser.parse_args(),))
