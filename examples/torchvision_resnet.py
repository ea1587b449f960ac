"""torchvision's ResNet-18 on XLA: python examples/torchvision_resnet.py

An ordinary model of a library: torch.compile(..., backend="xla") is all that it takes. It learns
handwritten digits, enlarged to 32 x 32 pixels.
"""

# torchvision is installed by its users.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import statistics
import time

import torch
from rich.progress import track
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional as F
from torchvision.models import resnet18

import xla_dynamo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()

    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = F.interpolate(images.float().reshape(-1, 1, 8, 8) / 16, scale_factor=4.0)
    images = images.expand(-1, 3, -1, -1)
    model = resnet18(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @torch.compile(backend="xla")
    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images), labels)

    losses, seconds = [], []
    for _ in track(range(options.steps), "Training"):
        chosen = torch.randint(len(images), (options.batch_size,))
        start = time.perf_counter()
        loss = loss_of(images[chosen], labels[chosen])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())

    fallbacks = [name for name in xla_dynamo.counters() if name.startswith("fallback.")]
    print(f"programs    {len(xla_dynamo.compiles())}")
    print(f"not on XLA  {', '.join(fallbacks) or 'nothing'}")
    print(f"first step  {seconds[0]:.1f} s, with compiling")
    print(f"step        {statistics.median(seconds) * 1e3:.0f} ms, median")
    print(f"loss        {losses[0]:.2f} at first, {losses[-1]:.2f} at the end")


if __name__ == "__main__":
    main()
