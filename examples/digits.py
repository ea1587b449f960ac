"""Train a classifier of handwritten digits on an XLA device: python examples/digits.py --epochs 20

An ordinary PyTorch training loop. Two calls of torch.compile(..., backend="xla") put the model
(forward and backward) and the optimizer on XLA; everything else stays as it was.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Sequence

import torch
from rich.progress import track
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

import xla_dynamo


def convnet() -> nn.Module:
    """Two convolutions and a linear layer for images of 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 10),
    )


def digits() -> Sequence[Subset[tuple[Tensor, ...]]]:
    """The 1,797 images of scikit-learn: three quarters to train on, one quarter held out."""
    arrays = load_digits(return_X_y=True)
    pixels, labels = (torch.from_numpy(array) for array in arrays)
    everything = TensorDataset(pixels.float().reshape(-1, 1, 8, 8) / 16, labels)
    return random_split(everything, [0.75, 0.25])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    # Dynamo warns that the profiler's mark in optimizer.step() is not compiled: it need not be.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)

    torch.manual_seed(0)
    train, held_out = digits()
    # XLA compiles once per shape: the last, shorter batch is left out.
    batches = DataLoader(train, options.batch_size, shuffle=True, drop_last=True)
    model = convnet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    @torch.compile(backend="xla")
    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images), labels)

    update = torch.compile(optimizer.step, backend="xla")
    predict = torch.compile(model, backend="xla")

    steps: list[float] = []
    for _ in track(range(options.epochs), "Training"):
        for images, labels in batches:
            start = time.perf_counter()
            loss_of(images, labels).backward()
            update()
            optimizer.zero_grad()
            steps.append(time.perf_counter() - start)

    model.eval()
    images, labels = held_out[:]
    with torch.no_grad():
        correct = predict(images).argmax(1) == labels

    compiles = xla_dynamo.compiles()
    seconds = sum(c.lowering_seconds + c.compile_seconds for c in compiles)
    fallbacks = [name for name in xla_dynamo.counters() if name.startswith("fallback.")]
    report = {
        "device": xla_dynamo.device(),
        "compiled": f"{len(compiles)} programs in {seconds:.1f} s",
        "not on XLA": ", ".join(fallbacks) or "nothing",
        "first step": f"{steps[0]:.1f} s, with compiling",
        "step time": f"{statistics.median(steps) * 1e3:.1f} ms, median of {len(steps)}",
        "held-out accuracy": f"{correct.float().mean():.2%} of {len(labels)} images",
    }
    for name, value in report.items():
        print(f"{name:<19}{value}")


if __name__ == "__main__":
    main()
