"""Training steps compiled for a TPU that is not here: `python -m benchmarks.tpu`.

Each model of torch_models.py, lowered by xla_dynamo, beside the same model written by hand in JAX,
both compiled by libtpu for one core of the same chip. What its cost and memory analysis say of a
program does not vary from run to run. Prints a table with ratios (below 1: less than JAX) and
appends every pair to a JSONL file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from xla_dynamo.backend.runtime import topology
from xla_dynamo.backend.runtime.topology import Analysis
from xla_dynamo.backend.tpu_cost.analyze import lower_training_step

from . import jax_models, torch_models
from .torch_models import Problem

TOPOLOGY = "v5e:2x2"
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mnist": torch_models.mnist,
    "resnet18": torch_models.resnet18,
    "resnet18_batch32": partial(torch_models.resnet18, batch=32),
    "gpt": torch_models.gpt,
    "gpt_dropout": partial(torch_models.gpt, dropout=0.1),
}
_JAX_PRECISION = {"highest": "highest", "high": "high", "medium": "default"}
# What is compared: fields and properties of Analysis, and a divisor and unit to print them in.
_MEASURES = {
    "flops": (1e9, "GFLOP"),
    "bytes_accessed": (1e6, "MB"),
    "temporary": (1e6, "MB"),
    "arguments": (1e6, "MB"),
    "peak": (1e6, "MB"),
}


@dataclass(frozen=True)
class Comparison:
    """One model on both roads; seconds are those of the TPU compiler."""

    problem: str
    precision: str
    ours: Analysis
    theirs: Analysis
    our_seconds: float
    their_seconds: float

    def ratio(self, measure: str) -> float:
        """Ours divided by JAX's, of "flops", "bytes_accessed", "temporary", ..."""
        ours, theirs = getattr(self.ours, measure), getattr(self.theirs, measure)
        if not theirs:
            return math.inf if ours else 1.0
        return ours / theirs

    def record(self) -> dict[str, Any]:
        ratios = {f"{measure}_ratio": round(self.ratio(measure), 4) for measure in _MEASURES}
        return {"topology": TOPOLOGY, **dataclasses.asdict(self), **ratios}


def compare(problem: Problem, precision: str) -> Comparison:
    """Compile `problem` on both roads at a matmul precision ("highest", "high", "medium")."""
    model, batch = problem.build()
    lowered = lower_training_step(model, batch, matmul_precision=precision)
    start = time.perf_counter()
    ours, _ = topology.compile(lowered.module, TOPOLOGY)
    middle = time.perf_counter()
    theirs = compile_by_hand(problem, precision)
    end = time.perf_counter()
    return Comparison(problem.name, precision, ours, theirs, middle - start, end - middle)


def compile_by_hand(problem: Problem, precision: str) -> Analysis:
    """The JAX step of `problem`, compiled for the same target."""
    model, batch = problem.build()
    here = (*jax_models.state_of(model), jax.random.PRNGKey(0), *jax_models.inputs_of(batch))
    there = jax.sharding.SingleDeviceSharding(topology.topology_device(TOPOLOGY))
    arguments = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=there), here
    )
    with jax.default_matmul_precision(_JAX_PRECISION[precision]):
        step: Any = jax_models.training_step(jax_models.LOSSES[problem.name])
        compiled = step.lower(*arguments).compile()
    return topology.analyze(compiled.cost_analysis(), compiled.memory_analysis())


def table(comparisons: list[Comparison]) -> Table:
    shown = Table(title=f"Training step on {TOPOLOGY}")
    for column in ("model", "precision", "measure", "xla_dynamo", "JAX", "ratio"):
        left = column in ("model", "precision", "measure")
        shown.add_column(column, justify="left" if left else "right")
    for one in comparisons:
        name = (one.problem, one.precision)
        for measure, (scale, unit) in _MEASURES.items():
            values = (getattr(side, measure) / scale for side in (one.ours, one.theirs))
            cells = (f"{value:,.1f}" for value in values)
            what = f"{measure.replace('_', ' ')}, {unit}"
            shown.add_row(*name, what, *cells, f"{one.ratio(measure):.3f}")
            name = ("", "")
        shown.add_row(*name, "compile, s", f"{one.our_seconds:.0f}", f"{one.their_seconds:.0f}")
        shown.add_section()
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=PROBLEMS, action="append")
    parser.add_argument("--precision", choices=_JAX_PRECISION, action="append")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/tpu_results.jsonl"))
    arguments = parser.parse_args()
    console = Console()
    comparisons = []
    for name in arguments.model or PROBLEMS:
        for precision in arguments.precision or ("medium",):
            with console.status(f"compiling {name} at precision {precision}"):
                comparison = compare(PROBLEMS[name](), precision)
            comparison = dataclasses.replace(comparison, problem=name)
            comparisons.append(comparison)
            with arguments.output.open("a") as file:
                file.write(json.dumps(comparison.record()) + "\n")
    console.print(table(comparisons))


if __name__ == "__main__":
    main()
