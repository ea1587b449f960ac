"""CPU time of importing a legacy script's names, here and in torch_xla: fresh processes in turns.

`python -m benchmarks.imports --torch-xla PYTHON`, the Python of an environment that has it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping

ROUNDS = 5
_TIMED = """
import os
before = os.times()
{imports}
now = os.times()
print(now.user - before.user + now.system - before.system)
"""
TORCH = "import torch"
OURS = "import xla_dynamo.compat\nimport torch_xla.core.xla_model"
THEIRS = "import torch_xla.core.xla_model"


def cpu_seconds(python: str, imports: str) -> float:
    """User and system time of one fresh process, of its import statements alone."""
    command = [python, "-W", "ignore", "-c", _TIMED.format(imports=imports)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(run.stdout.splitlines()[-1])


def run(torch_xla: str, rounds: int = ROUNDS) -> dict[str, float]:
    """Least seconds of what is imported, and of torch alone in the same environment."""
    measured = {
        "torch, here": (sys.executable, TORCH),
        "xla_dynamo.compat and xla_model": (sys.executable, OURS),
        "torch, beside torch_xla": (torch_xla, TORCH),
        "torch_xla's xla_model": (torch_xla, THEIRS),
    }
    least = dict.fromkeys(measured, float("inf"))
    for _ in range(rounds):
        for name, (python, imports) in measured.items():
            least[name] = min(least[name], cpu_seconds(python, imports))
    return least


def table(seconds: Mapping[str, float]) -> str:
    """Markdown; a ratio of 1 is what torch_xla's import takes."""
    whole = seconds["torch_xla's xla_model"]
    lines = ["| import | CPU s | ratio |", "|---|--:|--:|"]
    lines += [f"| {name} | {time:.2f} | {time / whole:.2f} |" for name, time in seconds.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-xla", metavar="PYTHON", required=True)
    print(table(run(parser.parse_args().torch_xla)))
