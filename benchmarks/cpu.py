"""Training steps on this machine's CPU, engine against engine: `python -m benchmarks.cpu`.

Prints a Markdown table with ratios to the xla backend and appends every measurement to a JSONL
file. torch_xla runs where `--torch-xla PYTHON` names the Python of an environment that has it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

PROBLEMS = ("mnist", "resnet18", "gpt")
SCRIPT = Path(__file__).with_name("engine.py")


def measure(python: str, engine: str, problem: str, seconds: float) -> dict[str, Any]:
    """Run one engine on one problem in a process of its own."""
    environment = {
        **os.environ,
        "XLA_DYNAMO_CACHE_DIR": "0",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "JAX_PLATFORMS": "cpu",
        "PJRT_DEVICE": "CPU",
    }
    command = [python, str(SCRIPT), engine, problem, "--seconds", str(seconds)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        return {"engine": engine, "problem": problem, "error": run.stderr.strip()[-500:]}
    return json.loads(run.stdout.splitlines()[-1])


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown; times also as multiples of the xla backend's (below 1: faster than it)."""
    lines = [
        "| model | engine | first step, s | step, ms | step / xla | peak memory, MB |",
        "|---|---|--:|--:|--:|--:|",
    ]
    ours = {row["problem"]: row for row in rows if row["engine"] == "xla"}
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['problem']} | {row['engine']} | failed | | | |")
            continue
        ratio = row["step_milliseconds"] / ours[row["problem"]]["step_milliseconds"]
        lines.append(
            f"| {row['problem']} | {row['engine']} | {row['first_step_seconds']:.1f} "
            f"| {row['step_milliseconds']:.1f} | {ratio:.2f} | {row['peak_megabytes']} |"
        )
    return "\n".join(lines)


def run(
    problems: Sequence[str], seconds: float, torch_xla: str | None, output: Path
) -> list[dict[str, Any]]:
    """Measure every engine that is here on `problems`; append each measurement to `output`."""
    engines = [
        ("xla", sys.executable),
        ("xla lazy", sys.executable),
        ("jax", sys.executable),
        ("eager", sys.executable),
    ]
    if shutil.which("g++") or shutil.which("clang++"):
        engines.append(("inductor", sys.executable))
    if torch_xla:
        engines.append(("torch_xla", torch_xla))
    jobs = [(problem, engine, python) for problem in problems for engine, python in engines]
    rows = []
    for problem, engine, python in track(jobs, description="measuring"):
        row = measure(python, engine, problem, seconds)
        rows.append(row)
        with output.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if "error" in row:
            print(f"{problem} on {engine}: {row['error']}", file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", choices=PROBLEMS, action="append")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each")
    parser.add_argument("--torch-xla", metavar="PYTHON", help="Python of an environment with it")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results.jsonl"))
    arguments = parser.parse_args()
    problems = arguments.problem or PROBLEMS
    print(table(run(problems, arguments.seconds, arguments.torch_xla, arguments.output)))


if __name__ == "__main__":
    main()
