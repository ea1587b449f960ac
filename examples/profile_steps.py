"""A timeline of training steps, for Perfetto or TensorBoard: python examples/profile_steps.py

jax.profiler records what XLA runs and when; the regions that are named here are in it. Open the
file that ends in .trace.json.gz in https://ui.perfetto.dev. torch.profiler has each launch of a
program among PyTorch's own ops.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

import jax
import torch
from torch import Tensor, nn

import xla_dynamo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary one")
    options = parser.parse_args()

    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.compile(backend="xla")
    def loss_of(x: Tensor) -> Tensor:
        return (model(x) - x).square().mean()

    update = torch.compile(optimizer.step, backend="xla")

    def step(x: Tensor) -> None:
        with jax.profiler.TraceAnnotation("forward"):
            loss = loss_of(x)
        with jax.profiler.TraceAnnotation("backward"):
            loss.backward()
        with jax.profiler.TraceAnnotation("update"):
            update()
            optimizer.zero_grad()

    x = torch.randn(64, 256)
    step(x)  # compiles; the profile is of what comes after
    folder = options.folder or Path(tempfile.mkdtemp())
    with jax.profiler.trace(str(folder)):
        for number in range(options.steps):
            with jax.profiler.StepTraceAnnotation("step", step_num=number):
                step(x)

    (trace,) = folder.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    for name in ("forward", "backward", "update"):
        times = sorted(event["dur"] for event in events if event.get("name") == name)
        print(f"{name:<9} {len(times)} times, median {times[len(times) // 2] / 1e3:.2f} ms")
    with torch.profiler.profile() as profile:
        step(x)
    launches = [event.key for event in profile.key_averages() if event.key.startswith("xla ")]
    print(f"launches  {', '.join(sorted(name.partition(' (')[0] for name in launches))}")
    print(f"programs  {len(xla_dynamo.compiles())}")
    print(f"timeline  {trace}")


if __name__ == "__main__":
    main()
