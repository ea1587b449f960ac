"""What is run in each environment: commands, and how their output is judged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .combinations import OPERATORS

Done = subprocess.CompletedProcess[str]
_RESULTS = "operators.jsonl"


def _exit_code(done: Done, folder: Path) -> str:
    """The failed tests, or the last line of what failed."""
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    first = failed[0].partition(" - ")[0] if failed else lines[-1] if lines else ""
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"exit code {done.returncode}: {first[:160]}{more}"


def _outcomes(done: Done, folder: Path) -> str:
    """Operators that are not right; what this torch lacks, or eager does not run, is no failure."""
    if done.returncode:
        return _exit_code(done, folder)
    lines = [json.loads(line) for line in (folder / _RESULTS).read_text().splitlines()]
    (folder / _RESULTS).unlink()
    bad = [line for line in lines if line["outcome"] not in ("right", "absent")]
    names = ", ".join(f"{line['op']} {line['outcome']}" for line in bad[:5])
    return names or ("" if len(lines) > 50 else f"only {len(lines)} operators")


@dataclass(frozen=True)
class Check:
    """A command of the environment's Python in the project's folder.

    judge: what is wrong, from its output and folder; "" for nothing.
    """

    name: str
    arguments: tuple[str, ...]
    judge: Callable[[Done, Path], str] = _exit_code
    seconds: int = 900


def _pytest(*arguments: str) -> tuple[str, ...]:
    return "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments


def _sweep(door: str) -> tuple[str, ...]:
    chosen = "--dtypes", "float32", "--directions", "forward", "--ops", ",".join(OPERATORS)
    return "-m", "tests.operators", *chosen, "--samples", "2", "--door", door, "--out", _RESULTS


_KERNELS = (
    "tests/backend/runtime/test_xla_ffi.py",
    "tests/backend/runtime/test_host_kernels.py",
    "tests/backend/lowering/test_host_kernels.py",
)

CHECKS = (
    Check("doctor", ("-m", "xla_dynamo", "doctor")),
    Check("spine", _pytest("-m", "spine", "tests/backend")),
    Check("kernels", _pytest(*_KERNELS)),
    Check("seeds", _pytest("tests/legacy/test_seeds.py")),
    Check("digits", ("examples/digits.py", "--epochs", "3")),
    Check("operators", _sweep("compile"), _outcomes),
    Check("lazy operators", _sweep("lazy"), _outcomes),
    Check("GPT step", _pytest("tests/models/test_training.py", "-k", "gpt")),
)
