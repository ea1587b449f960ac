"""What eager's numerics cost: `python -m benchmarks.numerics` writes the table of docs/numerics.md.

Training steps of torch_models.py with numerics="eager" and "xla": on this machine's CPU, taking
turns in one process, least time of a step; and compiled for one TPU core, by the compiler's own
analysis, which does not vary.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch

from xla_dynamo.backend.runtime import topology
from xla_dynamo.backend.tpu_cost import lower_training_step

from . import torch_models
from .torch_models import Problem

PAGE = Path("docs/numerics.md")
SECTION = re.compile("(<!-- numerics -->\n).*?(<!-- /numerics -->)", re.DOTALL)
NUMERICS = ("eager", "xla")
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mnist": torch_models.mnist,
    "resnet18": torch_models.resnet18,
    "gpt": torch_models.gpt,
}


def step_milliseconds(problem: Problem, seconds: float) -> dict[str, float]:
    """The least time of a training step on the CPU, by numerics."""
    steps = {numerics: _compiled_step(problem, numerics) for numerics in NUMERICS}
    least = dict.fromkeys(NUMERICS, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for numerics, step in steps.items():
            start = time.perf_counter()
            step()
            least[numerics] = min(least[numerics], 1e3 * (time.perf_counter() - start))
    return least


def _compiled_step(problem: Problem, numerics: str) -> Callable[[], None]:
    torch.compiler.reset()
    torch.manual_seed(0)
    model, batch = problem.build()
    compiled = torch.compile(model, backend="xla", options={"numerics": numerics})
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        compiled(*batch).backward()
        optimizer.step()

    for _ in range(3):
        step()
    return step


def tpu_analysis(problem: Problem, numerics: str) -> topology.Analysis:
    """FLOPs and bytes of a training step on one TPU v5e core."""
    model, batch = problem.build()
    lowered = lower_training_step(model, batch, matmul_precision="medium", numerics=numerics)
    return topology.compile(lowered.module, "v5e:2x2")[0]


def table(seconds: float) -> str:
    """Markdown: eager / xla = ratio."""
    lines = [
        "| model | CPU step, ms | TPU GFLOP | TPU MB accessed | TPU MB temporary |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, build in PROBLEMS.items():
        times = step_milliseconds(build(), seconds)
        eager, xla = (tpu_analysis(build(), numerics) for numerics in NUMERICS)
        cells = [
            _ratio(times["eager"], times["xla"]),
            _ratio(eager.flops / 1e9, xla.flops / 1e9),
            _ratio(eager.bytes_accessed / 1e6, xla.bytes_accessed / 1e6),
            _ratio(eager.temporary / 1e6, xla.temporary / 1e6),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def _ratio(eager: float, xla: float) -> str:
    ratio = f" = {eager / xla:.3f}" if xla else ""
    return f"{eager:.1f} / {xla:.1f}{ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="measured time of each model")
    arguments = parser.parse_args()
    text = f"\n{table(arguments.seconds)}\n\n"
    print(text)
    PAGE.write_text(SECTION.sub(lambda found: found[1] + text + found[2], PAGE.read_text()))


if __name__ == "__main__":
    main()
