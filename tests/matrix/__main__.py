"""`python -m tests.matrix`: build each environment, run the checks in it, write docs/versions.md.

Results are kept in matrix.jsonl, a line for each combination: what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .checks import CHECKS, Check
from .combinations import COMBINATIONS, Combination, interpreter
from .table import page

ROOT = Path(__file__).parents[2]
_TOOLS = "pytest pytest-timeout pytest-xdist hypothesis expecttest rich scikit-learn"
_INSTALL_SECONDS = 1800


def main(arguments: Sequence[str]) -> int:
    """Run the combinations that are not in the results yet; 0 if all their checks pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--only", default="", help="combinations whose names contain this")
    parser.add_argument("--results", type=Path, default=ROOT / "matrix.jsonl")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args(arguments)
    done = _read(options.results)
    for combination in COMBINATIONS:
        if options.only in combination.name and combination.name not in done:
            done[combination.name] = _run(combination, keep=options.keep)
            with options.results.open("a") as file:
                file.write(json.dumps({combination.name: done[combination.name]}) + "\n")
    (ROOT / "docs" / "versions.md").write_text(page(done))
    return int(any(told for cells in done.values() for told in cells["checks"].values()))


def _read(results: Path) -> dict[str, Any]:
    done: dict[str, Any] = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        done |= json.loads(line)
    return done


def _run(combination: Combination, *, keep: bool) -> dict[str, Any]:
    """Install, and run each check: its failure in a line, or "" where it passes."""
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"{combination.name}-"))
    print(f"{combination.name}: {folder}", flush=True)
    try:
        python, told = _environment(combination, folder)
        if told:
            checks = dict.fromkeys((check.name for check in CHECKS), told)
        else:
            # With a real torch_xla beside, each script is told that we take its place.
            quiet = {"PYTHONWARNINGS": "ignore::UserWarning"} if combination.torch_xla else {}
            checks = {check.name: _check(check, python, folder, quiet) for check in CHECKS}
        versions = _versions(python) if not told else {}
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.monotonic() - start)
    print(f"{combination.name}: {checks} in {seconds} s", flush=True)
    return {"checks": checks, "versions": versions, "seconds": seconds}


def _environment(combination: Combination, folder: Path) -> tuple[Path, str]:
    """A fresh virtual environment with a copy of the project; why there is none."""
    base = interpreter(combination.python)
    if base is None:
        return Path(), f"no Python {combination.python} on this machine"
    python = folder / "env" / "bin" / "python"
    subprocess.run([base, "-m", "venv", folder / "env"], check=True)
    subprocess.run(["git", "clone", "-q", ROOT, folder / "src"], check=True)
    # The environment's own bounds hold here, not a machine's.
    environment = os.environ | {"PIP_CONSTRAINT": os.devnull}
    packages = [*combination.packages(), *_TOOLS.split(), "--editable", str(folder / "src")]
    command = [str(python), "-m", "pip", "install", "--quiet", *packages]
    done = _call(command, folder, environment, _INSTALL_SECONDS)
    if done is None or done.returncode:
        return python, "pip: " + _last_line(done.stderr if done else "too slow")
    return python, ""


def _check(check: Check, python: Path, folder: Path, more: dict[str, str]) -> str:
    environment = os.environ | {"XLA_DYNAMO_CACHE_DIR": str(folder / "cache")} | more
    environment.pop("PYTHONPATH", None)
    done = _call([str(python), *check.arguments], folder / "src", environment, check.seconds)
    if done is None:
        return f"takes more than {check.seconds} s"
    (folder / f"{check.name}.log").write_text(done.stdout + done.stderr)
    return check.judge(done, folder / "src")


def _call(
    command: Sequence[str], folder: Path, environment: dict[str, str], seconds: int
) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return None


def _versions(python: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({p: m.version(p) for p in ('torch', 'torch-mlir', 'jaxlib', 'numpy')}))"
    )
    return json.loads(subprocess.check_output([python, "-c", code], text=True))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
