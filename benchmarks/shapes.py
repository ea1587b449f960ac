"""Sizes that change, with and without buckets: `python -m benchmarks.shapes`.

50 random lengths (a block of GPT) and 50 random batch sizes (a convnet with running statistics),
through torch.compile and as steps on `xla:0`: how many programs, and seconds for all 50 steps, each
in a process of its own without a disk cache. Then what a step takes whose size is its bucket's, as
a multiple of the static program's: in one process, taking turns, the least of many.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import torch_models

STEPS, ROUNDS, REPEATS = 50, 12, 4
BUCKETS = ("powers_of_two", "half_steps")
WAYS = ("torch.compile", "xla:0")


class Images(nn.Module):
    """A small convnet; its forward returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 8 * 8, 10)),
        )

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(image), label)


@dataclass(frozen=True)
class Problem:
    """batch: of a size. dimension: of the inputs, which changes. largest: size, a bucket's."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, ...]]
    dimension: int
    largest: int

    def sizes(self) -> list[int]:
        """Those of all steps."""
        draw = random.Random(0)
        return [draw.randint(2, self.largest) for _ in range(STEPS)]


def _tokens(length: int) -> tuple[Tensor, ...]:
    return torch_models.gpt(batch=4, length=length).batch()


PROBLEMS = {
    "gpt": Problem(torch_models.gpt(layers=1, width=128, length=128).model, _tokens, 1, 128),
    "convnet": Problem(Images, lambda n: torch_models.resnet18(n, 32).batch(), 0, 64),
}

Step = Callable[[int], float]


def _compiled(problem: Problem, bucket: str | None) -> Step:
    """A training step of a size, through torch.compile; its loss."""
    torch.manual_seed(0)
    model = problem.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    names: dict[str, Any] = {"model": model}  # Dynamo keeps graphs by code, not by backend
    exec(compile("def run(*inputs): return model(*inputs)", str(bucket), "exec"), names)
    options: dict[str, Any] = {"bucket": bucket}
    run = torch.compile(names["run"], backend="xla", options=options)

    def step(size: int) -> float:
        inputs = _inputs(problem, size)
        for x in inputs:
            torch._dynamo.mark_dynamic(x, problem.dimension)
        optimizer.zero_grad()
        loss = run(*inputs)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _lazy(problem: Problem, bucket: str | None) -> Step:
    """A training step of a size, on tensors of `xla:0`; its loss."""
    import xla_dynamo.compat

    xla_dynamo.compat.install()
    import torch_xla.core.xla_model as xm  # type: ignore[import-not-found]

    xla_dynamo.compat.set_option("bucket", bucket)
    torch.manual_seed(0)
    model = problem.model().to("xla:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(size: int) -> float:
        inputs = [x.to("xla:0") for x in _inputs(problem, size)]
        optimizer.zero_grad()
        loss = model(*inputs)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        return loss.item()

    return step


def _inputs(problem: Problem, size: int) -> tuple[Tensor, ...]:
    torch.manual_seed(size)
    image_or_tokens, label = problem.batch(size)
    return image_or_tokens, label % 10 if label.dim() == 1 else label


MAKE = {"torch.compile": _compiled, "xla:0": _lazy}


def many(problem: Problem, way: str, bucket: str | None) -> dict[str, float]:
    """Programs and seconds of steps of random sizes."""
    import xla_dynamo

    step = MAKE[way](problem, bucket)
    start = time.perf_counter()
    for size in problem.sizes():
        step(size)
    return {"programs": len(xla_dynamo.compiles()), "seconds": time.perf_counter() - start}


def overhead(problem: Problem, way: str) -> dict[str, float]:
    """What a step with masks takes at its bucket's size, and one that has come eight times.

    Both as multiples of the static program's step.
    """
    from xla_dynamo.backend.executable import bucketed

    masked, bucketed._RECURRING = bucketed._RECURRING, sys.maxsize
    take_turns = _compiled_turns if way == "torch.compile" else _lazy_turns
    with_masks = take_turns(problem)
    bucketed._RECURRING = masked
    torch.compiler.reset()
    return {"masks": with_masks, "recurring": take_turns(problem)}


def _compiled_turns(problem: Problem) -> float:
    steps = {bucket: _compiled(problem, bucket) for bucket in (None, BUCKETS[0])}
    return _ratio({bucket: lambda: None for bucket in steps}, steps, problem)


def _lazy_turns(problem: Problem) -> float:
    """The option is the process's: it is set at each turn, and programs are found again."""
    import xla_dynamo.compat
    from xla_dynamo.compat.execution import program_cache, size_templates

    steps = {bucket: _lazy(problem, bucket) for bucket in (None, BUCKETS[0])}
    program_cache._runs.clear()
    size_templates._families.clear()
    turns = {b: lambda b=b: xla_dynamo.compat.set_option("bucket", b) for b in steps}
    return _ratio(turns, steps, problem)


def _ratio(turns: dict[Any, Callable[[], Any]], steps: dict[Any, Step], problem: Problem) -> float:
    """The least time of a padded step over that of the static one."""
    least = dict.fromkeys(steps, float("inf"))
    for bucket, step in steps.items():
        turns[bucket]()
        for size in (problem.largest - 5, problem.largest - 3, *[problem.largest] * 12):
            step(size)
    for _ in range(ROUNDS):
        for bucket, step in steps.items():
            turns[bucket]()
            step(problem.largest)
            for _ in range(REPEATS):
                start = time.perf_counter()
                step(problem.largest)
                least[bucket] = min(least[bucket], time.perf_counter() - start)
    return least[BUCKETS[0]] / least[None]


def _measured(*arguments: str) -> dict[str, float]:
    """What this module prints with these arguments, in a process of its own."""
    environment = {**os.environ, "XLA_DYNAMO_CACHE_DIR": "0", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "benchmarks.shapes", *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{command} failed: {run.stderr[-1000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def run() -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Every measurement: (problem, way in) -> bucket, or "overhead" -> what was measured."""
    found = {}
    for problem in PROBLEMS:
        for way in WAYS:
            rows = {bucket: _measured(problem, way, bucket) for bucket in ("none", *BUCKETS)}
            rows["overhead"] = _measured(problem, way, "overhead")
            found[problem, way] = rows
    return found


def table(results: dict[tuple[str, str], dict[str, dict[str, float]]]) -> str:
    """Markdown: programs and seconds for each choice of buckets, and the ratios."""
    lines = [
        "| model | way in | no buckets | powers of two | half steps | masked | recurring |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for (problem, way), rows in results.items():
        cells = [
            f"{rows[bucket]['programs']} in {rows[bucket]['seconds']:.0f} s"
            for bucket in ("none", *BUCKETS)
        ]
        cells += [f"{rows['overhead'][name]:.2f}" for name in ("masks", "recurring")]
        lines.append(f"| {problem} | `{way}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", nargs="?", choices=PROBLEMS)
    parser.add_argument("way", nargs="?", choices=WAYS)
    parser.add_argument("measured", nargs="?", choices=("none", *BUCKETS, "overhead"))
    given = parser.parse_args()
    if given.measured is None:
        print(table(run()))
        return
    problem = PROBLEMS[given.problem]
    if given.measured == "overhead":
        print(json.dumps(overhead(problem, given.way)))
    else:
        bucket = None if given.measured == "none" else given.measured
        print(json.dumps(many(problem, given.way, bucket)))


if __name__ == "__main__":
    main()
