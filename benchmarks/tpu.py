"""Training steps compiled for a TPU that is not here: `python -m benchmarks.tpu`.

Each model of torch_models.py and torch_networks.py, lowered by xla_dynamo, beside the same model
written by hand in JAX, both compiled by libtpu for one core of the same chip: in float32, and the
networks in bfloat16 and mixed precision (torch.autocast), too. What its cost and memory analysis
say of a program does not vary from run to run. Prints a table with ratios (below 1: less than JAX),
what is behind those above 1 by the HLO (tpu_hlo.py), and appends every pair to a JSONL file. A
compile takes half a minute to five, on either side.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.runtime import topology
from xla_dynamo.backend.runtime.topology import Analysis
from xla_dynamo.backend.tpu_cost.analyze import lower_training_step

from . import jax_models, jax_networks, torch_models, torch_networks, tpu_hlo
from .torch_models import Problem

TOPOLOGY = "v5e:2x2"
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mnist": torch_models.mnist,
    "resnet18": torch_models.resnet18,
    "resnet18_batch32": partial(torch_models.resnet18, batch=32),
    "gpt": torch_models.gpt,
    "gpt_dropout": partial(torch_models.gpt, dropout=0.1),
    **{
        name: partial(torch_networks.NETWORKS.__getitem__, name) for name in torch_networks.NETWORKS
    },
}
DTYPES = ("float32", "bfloat16", "autocast")
_JAX_PRECISION = {"highest": "highest", "high": "high", "medium": "default"}
# What is compared: fields and properties of Analysis, and a divisor and unit to print them in.
_MEASURES = {
    "flops": (1e9, "GFLOP"),
    "bytes_accessed": (1e6, "MB"),
    "temporary": (1e6, "MB"),
    "cycles": (1e6, "M"),
    "arguments": (1e6, "MB"),
    "peak": (1e6, "MB"),
}
# The same, of tpu_hlo.Program.
_READ = dict.fromkeys(("computed", "hbm", "copied", "alive"), (1e6, "MB"))
_READ |= dict.fromkeys(("product_cycles", "other_cycles"), (1e6, "M"))
# Of a ratio above 1: what of the HLO says why.
_BEHIND = {
    "bytes_accessed": ("computed", "hbm", "copied"),
    "temporary": ("alive",),
    "cycles": ("product_cycles", "other_cycles"),
}


@dataclass(frozen=True)
class Comparison:
    """One model on both roads; seconds are those of the TPU compiler."""

    problem: str
    precision: str
    dtype: str
    topology: str
    ours: Analysis
    theirs: Analysis
    our_program: tpu_hlo.Program
    their_program: tpu_hlo.Program
    our_seconds: float
    their_seconds: float

    def both(self, measure: str) -> tuple[float, float]:
        """Ours and JAX's, of "flops", "bytes_accessed", "temporary", ..., "hbm", "alive"."""
        if measure in _READ:
            return getattr(self.our_program, measure), getattr(self.their_program, measure)
        return getattr(self.ours, measure), getattr(self.theirs, measure)

    def ratio(self, measure: str) -> float:
        """Ours divided by JAX's."""
        ours, theirs = self.both(measure)
        if not theirs:
            return math.inf if ours else 1.0
        return ours / theirs

    def record(self) -> dict[str, Any]:
        ratios = {f"{name}_ratio": round(self.ratio(name), 4) for name in (*_MEASURES, *_READ)}
        return {**dataclasses.asdict(self), **ratios}


class Mixed(nn.Module):
    """A model within torch.autocast."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(*inputs)


def compare(
    problem: Problem, precision: str, dtype: str = "float32", where: str = TOPOLOGY
) -> Comparison:
    """Compile `problem` on both roads at a matmul precision ("highest", "high", "medium")."""
    model, batch = build(problem, dtype)
    mixed = Mixed(model) if dtype == "autocast" else model
    lowered = lower_training_step(mixed, batch, matmul_precision=precision)
    start = time.perf_counter()
    ours, hlo = topology.compile(lowered.module, where)
    middle = time.perf_counter()
    theirs, their_hlo = compile_by_hand(problem, precision, dtype, where)
    end = time.perf_counter()
    programs = tpu_hlo.read(hlo), tpu_hlo.read(their_hlo)
    seconds = middle - start, end - middle
    return Comparison(problem.name, precision, dtype, where, ours, theirs, *programs, *seconds)


def build(problem: Problem, dtype: str) -> tuple[nn.Module, Sequence[Tensor]]:
    """The model and its batch: floats of the batch have the dtype of the model's."""
    model, batch = problem.build()
    if dtype != "bfloat16":
        return model, batch
    return model.bfloat16(), [x.bfloat16() if x.is_floating_point() else x for x in batch]


def compile_by_hand(
    problem: Problem, precision: str, dtype: str, where: str
) -> tuple[Analysis, str]:
    """The JAX step of `problem`, compiled for the same target, and its optimized HLO."""
    model, batch = build(problem, dtype)
    there = jax.sharding.SingleDeviceSharding(topology.topology_device(where))

    def struct(x: Tensor) -> jax.ShapeDtypeStruct:
        own = dtypes.to_numpy(x.dtype)
        narrow = np.dtype(np.int32) if own == np.int64 else own
        return jax.ShapeDtypeStruct(tuple(x.shape), narrow, sharding=there)

    def structs(named: Iterable[tuple[str, Tensor]]) -> dict[str, jax.ShapeDtypeStruct]:
        return {name: struct(x) for name, x in named}

    parameters, buffers = structs(model.named_parameters()), structs(model.named_buffers())
    key = jax.ShapeDtypeStruct((2,), np.uint32, sharding=there)
    with jax.default_matmul_precision(_JAX_PRECISION[precision]):
        step: Any = jax_models.training_step(_loss(problem.name, dtype))
        inputs = [struct(x) for x in batch]
        compiled = step.lower(parameters, buffers, parameters, key, *inputs).compile()
    memory, hlo = compiled.memory_analysis(), compiled.as_text()
    return topology.analyze(compiled.cost_analysis(), memory, hlo), hlo


def _loss(name: str, dtype: str) -> jax_models.Loss:
    if name in jax_networks.LOSSES:
        return jax_networks.loss(name, mixed=dtype == "autocast")
    if dtype != "float32":
        raise ValueError(f"{name} is written in JAX for float32 only")
    return jax_models.LOSSES[name]


def table(comparisons: list[Comparison]) -> Table:
    shown = Table(title=f"Training step on {comparisons[0].topology}")
    for column in ("model", "dtype", "precision", "measure", "xla_dynamo", "JAX", "ratio"):
        left = column in ("model", "dtype", "precision", "measure")
        shown.add_column(column, justify="left" if left else "right")
    for one in comparisons:
        name = (one.problem, one.dtype, one.precision)
        for measure, (scale, unit) in (_MEASURES | _READ).items():
            cells = (f"{value / scale:,.1f}" for value in one.both(measure))
            what = f"{measure.replace('_', ' ')}, {unit}"
            shown.add_row(*name, what, *cells, f"{one.ratio(measure):.3f}")
            name = ("", "", "")
        shown.add_row(*name, "compile, s", f"{one.our_seconds:.0f}", f"{one.their_seconds:.0f}")
        shown.add_section()
    return shown


def explained(one: Comparison) -> list[str]:
    """For each of bytes, temporary memory and cycles that are above JAX's, what the HLO says."""
    lines = []
    for measure, behind in _BEHIND.items():
        if one.ratio(measure) > 1:
            parts = [f"{name} {one.ratio(name):.3f}" for name in behind]
            lines.append(f"{measure} {one.ratio(measure):.3f}: {', '.join(parts)}")
    if one.ratio("temporary") > 1:
        sides = {"xla_dynamo": one.our_program, "JAX": one.their_program}
        lines += [f"  alive in {side}: {', '.join(own.largest)}" for side, own in sides.items()]
    return [f"{one.problem}, {one.dtype}: {line}" for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=PROBLEMS, action="append")
    parser.add_argument("--precision", choices=_JAX_PRECISION, action="append")
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--topology", default=TOPOLOGY)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/tpu_results.jsonl"))
    arguments = parser.parse_args()
    console = Console()
    comparisons = []
    for name in arguments.model or PROBLEMS:
        own = DTYPES if name in torch_networks.NETWORKS else DTYPES[:1]
        chosen = [dtype for dtype in arguments.dtype or own if dtype in own]
        for precision, dtype in itertools.product(arguments.precision or ("medium",), chosen):
            with console.status(f"compiling {name} in {dtype} at precision {precision}"):
                comparison = compare(PROBLEMS[name](), precision, dtype, arguments.topology)
            comparison = dataclasses.replace(comparison, problem=name)
            comparisons.append(comparison)
            with arguments.output.open("a") as file:
                file.write(json.dumps(comparison.record()) + "\n")
    console.print(table(comparisons))
    for line in itertools.chain.from_iterable(map(explained, comparisons)):
        console.print(line)


if __name__ == "__main__":
    main()
