"""A loop of Accelerate on an XLA device: python -m xla_dynamo run examples/accelerate_loop.py

Accelerate looks for torch_xla, finds xla_dynamo's, and takes the device xla:0. The loop is what it
is on GPUs.
"""

# accelerate is installed by its users.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse

import torch
import torch_xla.debug.metrics as met
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="at most, in each epoch")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(1, options.epochs + 1):
        right = torch.zeros((), device=accelerator.device)
        steps = 0
        for images, labels in loader:
            if steps == options.steps:
                break
            scores = model(images)
            accelerator.backward(F.cross_entropy(scores, labels))
            optimizer.step()
            optimizer.zero_grad()
            right += (scores.detach().argmax(1) == labels).float().mean()
            steps += 1
        accelerator.print(
            f"epoch {epoch} on {accelerator.device}: {right.item() / steps:.2%} right"
        )
    accelerator.print(f"programs  {met.counter_value('UncachedCompile')}")


if __name__ == "__main__":
    main()
