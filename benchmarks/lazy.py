"""Host time of a legacy training step against torch_xla.

`python -m benchmarks.lazy --torch-xla PYTHON`, with the Python of an environment that has it.
Both run benchmarks/decoder_step.py on the CPU, taking turns, so that other load on the machine does
not favour one. A ratio below 1 means that the lazy device here takes less time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("decoder_step.py")
ROUNDS = 3
# What is added up: (row of the table, which kind of step, which of its parts).
ROWS = (
    ("forward and backward, repeated", "repeated", ("forward", "backward")),
    ("forward, backward and Adam, repeated", "repeated", ("forward", "backward", "optimizer")),
    ("the same, never recorded before", "fresh", ("forward", "backward", "optimizer")),
    ("whole step, barrier included", "repeated", ("forward", "backward", "optimizer", "barrier")),
)


def measure(command: list[str]) -> dict[str, Any]:
    """The report of one run of the step script."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PJRT_DEVICE": "CPU",
        "PYTHONWARNINGS": "ignore",
    }
    run = subprocess.run([*command, str(SCRIPT)], env=environment, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{command} failed: {run.stderr[-1000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def run(torch_xla: str, rounds: int = ROUNDS) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reports with the least times of `rounds` runs: ours, and torch_xla's."""
    ours = [sys.executable, "-m", "xla_dynamo", "run"]
    reports: list[list[dict[str, Any]]] = [[], []]
    for _ in range(rounds):
        for found, command in zip(reports, (ours, [torch_xla]), strict=True):
            found.append(measure(command))
    return _least(reports[0]), _least(reports[1])


def _least(reports: list[dict[str, Any]]) -> dict[str, Any]:
    least = dict(reports[0])
    for kind in ("repeated", "fresh"):
        least[kind] = {part: min(r[kind][part] for r in reports) for part in least[kind]}
    return least


def table(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Markdown: milliseconds and their ratio."""
    lines = [
        "| 12-layer decoder with Adam | xla_dynamo, ms | torch_xla 2.9, ms | ratio |",
        "|---|--:|--:|--:|",
    ]
    for name, kind, parts in ROWS:
        mine, other = (sum(report[kind][part] for part in parts) for report in (ours, theirs))
        lines.append(f"| {name} | {mine:.1f} | {other:.1f} | {mine / other:.2f} |")
    lines.append(f"| ops recorded in a step | {ours['ops']} | {theirs['ops']} | |")
    lines.append(f"| loss of the last step | {ours['loss']:.6f} | {theirs['loss']:.6f} | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-xla", metavar="PYTHON", required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    print(table(*run(arguments.torch_xla, arguments.rounds)))


if __name__ == "__main__":
    main()
