"""Training and inference on this machine's CPU, engine against engine: `python -m benchmarks.cpu`.

Prints Markdown tables with ratios to three of the engines and appends every measurement to a JSONL
file. torch_xla runs where `--torch-xla PYTHON` names the Python of an environment that has it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from . import turns
from .cpu_problems import PROBLEMS
from .engine import ENGINES

SCRIPT = Path(__file__).with_name("engine.py")
OUTPUT = Path("benchmarks/results.jsonl")
TURNS = 8  # of each engine
BASES = ("xla", "eager", "inductor")  # a ratio to each is a column
STEPS = {"training": "step", "inference": "call"}  # what it is called in a table

CHOICES = {"models": tuple(PROBLEMS), "engines": tuple(ENGINES["training"]), "modes": tuple(STEPS)}


def measure(
    mode: str, model: str, engines: Mapping[str, str], seconds: float
) -> list[dict[str, Any]]:
    """Run engines, each by a Python, on one model, in processes of their own that take turns."""
    environment = {
        **os.environ,
        "XLA_DYNAMO_CACHE_DIR": "0",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "JAX_PLATFORMS": "cpu",
        "PJRT_DEVICE": "CPU",
    }
    commands = [[python, str(SCRIPT), mode, name, model] for name, python in engines.items()]
    with turns.engines(commands, environment) as running:
        for _ in range(TURNS):
            for engine in running:
                engine.turn(seconds / TURNS)
        found = [engine.end() for engine in running]
    names = [{"mode": mode, "engine": name, "problem": model} for name in engines]
    return [{**name, **row} for name, row in zip(names, found, strict=True)]


def table(rows: Sequence[dict[str, Any]], mode: str) -> str:
    """Markdown of the rows of a mode; times also as multiples of other engines'."""
    step = STEPS[mode]
    ratios = " | ".join(f"{step} / {base}" for base in BASES)
    lines = [
        f"| model | engine | first {step}, s | {step}, ms | {ratios} | peak memory, MB |",
        f"|---|---|{'--:|' * (len(BASES) + 3)}",
    ]
    rows = [row for row in rows if row["mode"] == mode]
    times = {(row["problem"], row["engine"]): row.get("step_milliseconds") for row in rows}
    for row in rows:
        model, engine = row["problem"], row["engine"]
        if "error" in row:
            lines.append(f"| {model} | {engine} | failed |{' |' * (len(BASES) + 2)}")
            continue
        time, others = row["step_milliseconds"], [times.get((model, base)) for base in BASES]
        cells = [
            f"{row['first_step_seconds']:.1f}",
            f"{time:.{1 if time >= 10 else 2}f}",
            *(f"{time / other:.2f}" if other else "" for other in others),
            str(row["peak_megabytes"]),
        ]
        lines.append(f"| {model} | {engine} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(
    models: Iterable[str],
    engines: Iterable[str],
    modes: Iterable[str],
    seconds: float,
    torch_xla: str | None,
    output: Path = OUTPUT,
) -> list[dict[str, Any]]:
    """Measure those of `engines` that are here; append each measurement to `output`."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    pythons = {
        "inductor": sys.executable if compiler else None,
        "torch_xla": torch_xla,
    }
    jobs = [(mode, model) for mode in modes for model in models]
    rows = []
    for mode, model in track(jobs, description="measuring"):
        here = {
            engine: python
            for engine in ENGINES[mode]
            if engine in engines and (python := pythons.get(engine, sys.executable))
        }
        for row in measure(mode, model, here, seconds):
            rows.append(row)
            with output.open("a") as file:
                file.write(json.dumps(row) + "\n")
            if "error" in row:
                print(f"{mode} of {model} on {row['engine']}: {row['error']}", file=sys.stderr)
    return rows


def some_of(choices: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """The type of an argument that is some of `choices`, with commas between."""
    known = tuple(choices)

    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if unknown := [name for name in chosen if name not in known]:
            message = f"no {', '.join(map(repr, unknown))}: there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(message)
        return chosen

    return parse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is measured here, and how long."""
    for name, known in CHOICES.items():
        meaning = f"some of {', '.join(known)}; without it, all"
        parser.add_argument(
            f"--{name}", type=some_of(known), default=known, metavar="A,B", help=meaning
        )
    parser.add_argument("--seconds", type=float, default=4.0, help="measured time of each")
    parser.add_argument("--torch-xla", metavar="PYTHON", help="Python of an environment with it")


def is_partial(arguments: argparse.Namespace) -> bool:
    """Whether they leave something out."""
    return any(getattr(arguments, name) != known for name, known in CHOICES.items())


def run_chosen(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """What the arguments of `add_arguments` name."""
    chosen = (arguments.models, arguments.engines, arguments.modes)
    return run(*chosen, arguments.seconds, arguments.torch_xla)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    rows = run_chosen(arguments)
    for mode in arguments.modes:
        print(f"\n{mode}\n\n{table(rows, mode)}")


if __name__ == "__main__":
    main()
