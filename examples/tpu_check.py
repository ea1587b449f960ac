"""Check xla_dynamo on this machine's accelerator: python examples/tpu_check.py

Trains small models on the device in both ways, torch.compile(backend="xla") and tensors of the lazy
device "xla", and compares losses and weights after three steps with PyTorch on the CPU. Prints what
can be pasted into an issue. Works on a TPU, on a GPU, and on a CPU.

With --spawn, a model is trained by a process for each chip, each with its part of the batch, and
compared likewise; on a CPU, --spawn 2 starts two.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo.compat  # isort: skip
import torch_xla.core.xla_model as xm  # served by xla_dynamo, isort: skip
import torch_xla.distributed.xla_multiprocessing as xmp  # isort: skip
import torch_xla.runtime as xr  # isort: skip


class Block(nn.Module):
    """A layer of a GPT: causal attention, then a two-layer network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    """Two layers over 1,000 tokens of text."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.layers = nn.Sequential(Block(width, 4), Block(width, 4), nn.LayerNorm(width))

    def forward(self, tokens: Tensor) -> Tensor:
        return (self.layers(self.embedding(tokens)) @ self.embedding.weight.T).mean(1)


class Recurrent(nn.Module):
    """An LSTM, and a linear layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1, groups=2),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    )


@dataclass(frozen=True)
class Case:
    """A model, its input, and how far its numbers may be from the CPU's, relatively."""

    name: str
    model: Callable[[], nn.Module]
    example: Callable[[], Tensor]
    tolerance: float = 2e-4
    dtype: torch.dtype = torch.float32


CASES = (
    Case("convnet", convnet, lambda: torch.randn(32, 3, 32, 32)),
    Case("GPT", Gpt, lambda: torch.randint(1000, (8, 256))),
    Case("LSTM", Recurrent, lambda: torch.randn(32, 50, 64)),
    Case("GPT, bfloat16", Gpt, lambda: torch.randint(1000, (8, 256)), 5e-2, torch.bfloat16),
)


class Training:
    """SGD on one batch; `step` is an ordinary training step on whatever device."""

    def __init__(self, model: nn.Module, x: Tensor, labels: Tensor, way: str) -> None:
        self.model, self.x, self.labels = model, x, labels
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.call = torch.compile(model, backend="xla") if way == "torch.compile" else model
        self.lazy = way == "lazily"

    def step(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.call(self.x).float(), self.labels)
        loss.backward()
        if self.lazy:
            xm.reduce_gradients(self.optimizer)
        self.optimizer.step()
        if self.lazy:
            xm.mark_step()
        return loss.detach()

    def weights(self) -> Tensor:
        parts = [weight.detach().cpu().double().flatten() for weight in self.model.parameters()]
        return torch.cat(parts)


def training(
    case: Case, way: str, device: torch.device, parts: int = 1, part: int | None = None
) -> Training:
    """On a batch that has as many equal `parts`, or on one of them."""
    torch.manual_seed(0)
    model, x = case.model().to(case.dtype), case.example()
    x = x.to(case.dtype) if x.is_floating_point() else x
    x = torch.cat([x] * (parts // math.gcd(len(x), parts)))
    rows = slice(None) if part is None else slice(part, None, parts)
    labels = torch.arange(len(x))[rows]
    model = copy.deepcopy(model).to(device)
    return Training(model, x[rows].to(device), labels.to(device), way)


def finish(device: torch.device) -> None:
    if device.type == "xla":
        xm.wait_device_ops()
    elif device.type == "cuda":
        torch.cuda.synchronize()


def milliseconds(of: Training, device: torch.device, steps: int, rounds: int) -> float:
    """Of a step: the median of rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            of.step()
        finish(device)
        times.append((time.perf_counter() - start) / steps * 1e3)
    return statistics.median(times)


def check(case: Case, way: str, device: torch.device, *timed: int) -> tuple[list[str], bool]:
    """A line of the table, and whether the numbers are right."""
    reference, tried = training(case, "eager", torch.device("cpu")), training(case, way, device)
    start = time.perf_counter()
    losses = [tried.step().item()]
    first = time.perf_counter() - start
    losses += [tried.step().item() for _ in range(2)]
    worst = difference(losses, tried.weights(), reference)
    right = worst <= case.tolerance
    step = milliseconds(tried, device, *timed)
    eager = (
        milliseconds(training(case, "eager", device), device, *timed) if way != "lazily" else None
    )
    row = [case.name, f"{way} on {device}", f"{worst:.1e}", "right" if right else "WRONG"]
    times = [f"{first:.1f} s", f"{step:.2f} ms", f"{eager:.2f} ms" if eager else ""]
    return [*row, *times], right


def check_dropout(way: str, device: torch.device, *_: int) -> tuple[list[str], bool]:
    """Attention that drops weights, which on a TPU is a kernel that draws them three times.

    Weights are linear in the values, so <gradient, out> is <gradient of the values, values>, if
    forward and backward dropped the same; and the other gradients agree in their own products.
    """
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(2, 4, 640, 64).to(device) for _ in range(4))
    call = F.scaled_dot_product_attention
    attend = torch.compile(call, backend="xla") if way == "torch.compile" else call
    given = [x.requires_grad_() for x in (q, k, v)]
    start = time.perf_counter()
    out = attend(q, k, v, dropout_p=0.25)
    by_q, by_k, by_v = torch.autograd.grad(out, given, grad)
    pairs = [((grad, out), (by_v, v)), ((by_q, q), (by_k, k))]
    errors = []
    for pair in pairs:
        one, other = ((x * y.detach()).cpu().double() for x, y in pair)
        errors.append(float((one.sum() - other.sum()).abs() / one.abs().sum()))
    first, worst = time.perf_counter() - start, max(errors)
    kept = attend(q, k, torch.ones_like(v), dropout_p=0.25).detach().cpu().mean()
    right = worst < 1e-4 and abs(float(kept) - 1) < 0.01
    row = ["dropped", f"{way} on {device}", f"{worst:.1e}", "right" if right else "WRONG"]
    return [*row, f"{first:.1f} s", "", ""], right


def difference(losses: list[float], weights: Tensor, reference: Training) -> float:
    """Of losses, and of the weights after as many steps, from those of an untrained reference."""
    expected = [reference.step().item() for _ in losses]
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
    theirs = reference.weights()
    return max(worst, float((weights - theirs).norm() / theirs.norm()))


def replica(rank: int, case: int, folder: str, *timed: int) -> None:
    """Three steps of one of several replicas, and then the time of a step."""
    size, device = xr.world_size(), xm.xla_device()
    tried = training(CASES[case], "lazily", device, size, rank)
    start = time.perf_counter()
    own = [tried.step().item()]
    first = time.perf_counter() - start
    own += [tried.step().item() for _ in range(2)]
    losses = [xm.mesh_reduce("loss", loss, sum) / size for loss in own]
    weights = tried.weights()
    step = milliseconds(tried, device, *timed)
    told = {"losses": losses, "weights": weights, "size": size, "first": first, "step": step}
    torch.save(told, os.path.join(folder, f"{rank}.pt"))


def check_spawn(case: int, nprocs: int | None, *timed: int) -> tuple[list[str], bool]:
    """A line of the table for replicas in processes, and whether the numbers of all are right."""
    with tempfile.TemporaryDirectory() as folder:
        xmp.spawn(replica, args=(case, folder, *timed), nprocs=nprocs)
        told = [torch.load(entry.path) for entry in os.scandir(folder)]
    of, size, cpu = CASES[case], told[0]["size"], torch.device("cpu")
    worst = max(
        difference(each["losses"], each["weights"], training(of, "eager", cpu, parts=size))
        for each in told
    )
    right = worst <= of.tolerance
    row = [of.name, f"{size} by xmp.spawn", f"{worst:.1e}", "right" if right else "WRONG"]
    return [*row, f"{told[0]['first']:.1f} s", f"{told[0]['step']:.2f} ms", ""], right


HEADS = ("model", "way", "error", "", "first step", "step", "eager")
LINE = "{:<14} {:<24} {:>8} {:<6} {:>12} {:>11} {:>11}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="steps in a timed round")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--models", nargs="*", help="only these: LSTM, GPT, ...")
    parser.add_argument(
        "--spawn",
        nargs="?",
        type=int,
        const=0,
        metavar="N",
        help="only replicas: on a TPU a process for each chip, else N",
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    console = Console(width=110)
    console.print(f"xla_dynamo {xla_dynamo.__version__}, torch {torch.__version__}")
    if options.spawn is not None:
        _spawn(console, options)
        return
    console.print(f"programs run on {xla_dynamo.device()}")
    home = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    console.print(LINE.format(*HEADS))
    all_right = True
    ways = (("torch.compile", home), ("lazily", xm.xla_device()))
    checks = {case.name: partial(check, case) for case in CASES}
    timed = options.steps, options.rounds
    for name, of in {**checks, "dropped": check_dropout}.items():
        if options.models and name not in options.models:
            continue
        for way, device in ways:
            row, right = of(way, device, *timed)
            console.print(LINE.format(*row))
            all_right &= right
    fallbacks = sum(n for name, n in xla_dynamo.counters().items() if name.startswith("fallback."))
    console.print(f"ops that ran on the CPU: {fallbacks}")
    raise SystemExit(0 if all_right else "wrong numbers: please report this output")


def _spawn(console: Console, options: argparse.Namespace) -> None:
    """Processes that take the chips: this one must not use a device."""
    names = [case.name for case in CASES]
    case = names.index(options.models[0] if options.models else "GPT")
    row, right = check_spawn(case, options.spawn or None, options.steps, options.rounds)
    console.print(LINE.format(*HEADS))
    console.print(LINE.format(*row))
    raise SystemExit(0 if right else "wrong numbers: please report this output")


if __name__ == "__main__":
    main()
