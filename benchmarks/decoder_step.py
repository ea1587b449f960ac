"""Host time of a legacy training step: one script for torch_xla and for the lazy device here.

A 12-layer decoder of small matrices with Adam, so that tracing is what takes time. Prints one JSON
object: milliseconds for forward, backward, optimizer and barrier of a step that repeats, and for
forward, backward and optimizer of a step whose ops were never recorded.

Run by benchmarks/lazy.py: `python decoder_step.py` under torch_xla, `python -m xla_dynamo run
decoder_step.py` here.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LENGTH, BATCH, WORDS, LAYERS = 64, 4, 32, 2, 128, 12
REPEATED, FRESH = 30, 3
PARTS = ("forward", "backward", "optimizer", "barrier")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).split(WIDTH, 2)
        q, k, v = (p.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for p in parts)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(WIDTH // HEADS)
        past = torch.tril(torch.ones(length, length, device=x.device)).bool()
        mixed = scores.masked_fill(~past, float("-inf")).softmax(-1) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).view(-1, WORDS), y.view(-1))


def medians(steps: list[list[float]], parts: tuple[str, ...]) -> dict[str, float]:
    return {part: statistics.median(step[i] for step in steps) for i, part in enumerate(parts)}


def main() -> None:
    torch.manual_seed(0)
    device = xm.xla_device()
    model = Decoder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = (torch.randint(0, WORDS, (BATCH, LENGTH)).to(device) for _ in range(2))

    def step(fresh: int = 0) -> tuple[list[float], torch.Tensor]:
        # An op that no earlier step had makes every op after it new.
        seen = torch.zeros(fresh + 1, device=device).sum() if fresh else None
        times = [time.perf_counter()]
        optimizer.zero_grad()
        loss = model(x, y)
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
        xm.mark_step()
        times.append(time.perf_counter())
        del seen
        xm.wait_device_ops()
        return [(b - a) * 1e3 for a, b in itertools.pairwise(times)], loss

    for _ in range(4):
        step()
    met.clear_all()
    repeated = [step()[0] for _ in range(REPEATED)]
    ops = sum(met.counter_value(n) for n in met.counter_names() if n.startswith("xla::"))
    fresh = [step(i)[0] for i in range(1, FRESH + 1)]
    _, loss = step()
    report = {
        "engine": torch_xla.__version__,
        "ops": ops // REPEATED,
        "loss": loss.item(),
        "repeated": medians(repeated, PARTS),
        "fresh": medians(fresh, PARTS[:3]),
    }
    json.dump(report, sys.stdout)
    print()


if __name__ == "__main__":
    main()
