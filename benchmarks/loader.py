"""A training step whose batches MpDeviceLoader brings, and one whose batches are on the device.

    python -m benchmarks.loader

Both run in one process, on the same batches, in turns: a round of each, again and again. The
batches are made before: what is measured is the loader's own part, threads, uploads and barriers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import xla_dynamo.compat  # isort: skip  # noqa: F401
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.distributed.parallel_loader as pl  # isort: skip

Batch = tuple[Tensor, Tensor]


def mlp() -> tuple[nn.Module, Callable[[], Tensor]]:
    layers = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    return layers, lambda: torch.randn(256, 784)


def convnet() -> tuple[nn.Module, Callable[[], Tensor]]:
    layers = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )
    return layers, lambda: torch.randn(64, 3, 64, 64)


MODELS = {"mlp": mlp, "convnet": convnet}


def epoch(model: nn.Module, optimizer: Any, batches: Iterable[Batch], *, marks: bool) -> float:
    """Milliseconds of a step; `marks` where the loader does not end steps."""
    start, count = time.perf_counter(), 0
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        count += 1
        if marks:
            xm.mark_step()
    xm.mark_step()
    xm.wait_device_ops()
    return (time.perf_counter() - start) / count * 1e3


def measure(name: str, steps: int, rounds: int) -> tuple[float, float]:
    """Medians: on the device, by the loader."""
    torch.manual_seed(0)
    device = xm.xla_device()
    model, example = MODELS[name]()
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches: list[Batch] = [(x := example(), torch.randint(10, (len(x),))) for _ in range(steps)]
    there = [(x.to(device), y.to(device)) for x, y in batches]
    times: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 2):
        found = (
            epoch(model, optimizer, there, marks=True),
            epoch(model, optimizer, pl.MpDeviceLoader(batches, device), marks=False),
        )
        if number > 1:
            for kept, value in zip(times, found, strict=True):
                kept.append(value)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="of a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    print("| model | on the device, ms | by MpDeviceLoader, ms | ratio |")
    print("|---|--:|--:|--:|")
    for name in options.models:
        there, loaded = measure(name, options.steps, options.rounds)
        print(f"| {name} | {there:.2f} | {loaded:.2f} | {loaded / there:.3f} |", flush=True)


if __name__ == "__main__":
    main()
