"""`python -m tests.matrix`: build each environment, run the checks in it, write docs/versions.md.

Results are kept in results.jsonl beside this file, a line for each combination: what is there is
run again only with `--redo`.
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
_RESULTS = Path(__file__).with_name("results.jsonl")
_TOOLS = "pytest pytest-timeout pytest-xdist hypothesis expecttest rich scikit-learn"
_INSTALL_SECONDS = 1800


def main(arguments: Sequence[str]) -> int:
    """Run what is not in the results yet; 0 if all checks pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--only", default="", help="combinations whose names contain this")
    parser.add_argument("--redo", default="", help="checks to run again: all, or seeds,digits")
    parser.add_argument("--keep", type=Path, help="a folder where environments stay, for --redo")
    options = parser.parse_args(arguments)
    done = _read()
    for combination in COMBINATIONS:
        if options.only not in combination.name:
            continue
        known = done.get(combination.name)
        chosen = _chosen(options.redo) if known else CHECKS
        if chosen:
            new = _run(combination, chosen, options.keep)
            if known and chosen != CHECKS:
                new["checks"] = known["checks"] | new["checks"]
                new["commit"] = known.get("commit", "")  # of most of them
            done[combination.name] = new
            _write(done)
    _write(done)  # what the page says of them may be new
    return int(any(told for cells in done.values() for told in cells["checks"].values()))


def _chosen(names: str) -> tuple[Check, ...]:
    return tuple(check for check in CHECKS if names == "all" or check.name in names.split(","))


def _read() -> dict[str, Any]:
    lines = _RESULTS.read_text().splitlines() if _RESULTS.exists() else []
    return {line.pop("name"): line for line in map(json.loads, lines)}


def _write(done: dict[str, Any]) -> None:
    names = [combination.name for combination in COMBINATIONS if combination.name in done]
    lines = [json.dumps({"name": name} | done[name]) + "\n" for name in names]
    _RESULTS.write_text("".join(lines))
    (ROOT / "docs" / "versions.md").write_text(page(done))


def _run(combination: Combination, chosen: Sequence[Check], keep: Path | None) -> dict[str, Any]:
    """Install, and run each check: its failure in a line, or "" where it passes; what was run."""
    start = time.monotonic()
    folder = keep.resolve() / combination.name if keep else Path(tempfile.mkdtemp(prefix="matrix-"))
    print(f"{combination.name}: {folder}", flush=True)
    try:
        python, told = _environment(combination, folder)
        if told:
            checks = dict.fromkeys((check.name for check in chosen), told)
        else:
            # With a real torch_xla beside, each script is told that we take its place.
            quiet = {"PYTHONWARNINGS": "ignore::UserWarning"} if combination.torch_xla else {}
            checks = {check.name: _check(check, python, folder, quiet) for check in chosen}
        versions = _versions(python) if not told else {}
        commit = _commit(folder / "src") if not told else ""
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.monotonic() - start)
    print(f"{combination.name}: {checks} in {seconds} s", flush=True)
    return {"checks": checks, "versions": versions, "commit": commit}


def _environment(combination: Combination, folder: Path) -> tuple[Path, str]:
    """A virtual environment with a copy of the project, fresh or kept; why there is none."""
    base = interpreter(combination.python)
    if base is None:
        return Path(), f"no Python {combination.python} on this machine"
    python = folder / "env" / "bin" / "python"
    made = folder / "made"
    if made.exists():
        subprocess.run(["git", "-C", folder / "src", "pull", "-q"], check=True)
        return python, ""
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
    folder.mkdir(parents=True)
    subprocess.run([base, "-m", "venv", folder / "env"], check=True)
    subprocess.run(["git", "clone", "-q", ROOT, folder / "src"], check=True)
    # The environment's own bounds hold here, not a machine's.
    environment = os.environ | {"PIP_CONSTRAINT": os.devnull}
    packages = [*combination.packages(), *_TOOLS.split(), "--editable", str(folder / "src")]
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile"]
    done = _call([*command, *packages], folder, environment, _INSTALL_SECONDS)
    if done is None or done.returncode:
        return python, "pip: " + _last_line(done.stderr if done else "too slow")
    made.touch()
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


def _commit(source: Path) -> str:
    return subprocess.check_output(
        ["git", "-C", source, "rev-parse", "--short", "HEAD"], text=True
    ).strip()


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
