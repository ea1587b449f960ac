"""`python -m tests.ecosystem`: programs of other libraries on XLA, compared with eager; a table.

Each program runs three times in a process of its own: in eager on the CPU, on xla tensors, and
under torch.compile(backend="xla") on the CPU. The examples that need such a library run once.
`make ecosystem` makes the environment.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

DOORS = ("lazy", "compile")
_SECONDS = 600


def main(arguments: Sequence[str]) -> int:
    """Run the programs whose names contain `--only`; 0 if all are as eager."""
    parser = argparse.ArgumentParser(prog="python -m tests.ecosystem", description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--run", nargs=2, metavar=("PROGRAM", "DOOR"), help="one, in this process")
    options = parser.parse_args(arguments)
    from . import examples
    from .loops import LOOPS
    from .programs import PROGRAMS

    programs = {**PROGRAMS, **LOOPS}
    if options.run:
        from .compare import compare

        name, door = options.run
        print(compare(programs[name], door))
        return 0
    failures = 0
    for name in (name for name in programs if options.only in name):
        told = [_outcome(name, door) for door in DOORS]
        failures += sum(not outcome.startswith("as eager") for outcome in told)
        print(f"| {name} | {' | '.join(told)} |", flush=True)
    for name in (name for name in examples.EXAMPLES if options.only in f"examples: {name}"):
        try:
            told = examples.outcome(name, _SECONDS)
        except subprocess.TimeoutExpired:
            told = f"no end after {_SECONDS} s"
        failures += told != "as it should be"
        print(f"| examples: {name} | {told} |", flush=True)
    return int(failures > 0)


def _outcome(name: str, door: str) -> str:
    """What `compare` says, or the last line of what the process printed."""
    command = [sys.executable, "-m", "tests.ecosystem", "--run", name, door]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no end after {_SECONDS} s"
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit code {done.returncode}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
