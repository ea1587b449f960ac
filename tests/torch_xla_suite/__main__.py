"""Runs the test files of a torch_xla checkout on this project, each in a process of its own.

    python -m tests.torch_xla_suite ~/pytorch_xla --out r.jsonl
    python -m tests.torch_xla_suite ~/pytorch_xla --merge r.jsonl

With `--real PYTHON` they run on the torch_xla of that Python's environment instead, which needs
pytest, expecttest and absl-py; merged with `--real`, too, it is a column of the page. The first
appends a line for each test as it ends, and skips what the file holds already: a run can
be stopped and started again. The second writes the record and docs/torch_xla_suite.md.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.codegen import make_quick

from .files import ENVIRONMENT, OF_FILES, SECONDS, TOO_LONG, Request, files_of
from .record import merge

_ROOT = Path(__file__).parents[2]


def main() -> None:
    options = _parse()
    checkout = options.checkout.resolve()
    files = [name for name in files_of(checkout) if re.search(options.only, name)]
    if options.merge:
        rows = _rows(options.merge)
        if options.devices > 1:
            rows = [row | {"file": f"{row['file']} ({options.devices} devices)"} for row in rows]
        print(merge(rows, real=bool(options.real)))
        return
    if not options.real and importlib.util.find_spec("absl") is None:
        sys.exit("torch_xla's tests import absl: pip install absl-py")
    make_quick()
    out: Path = options.out.resolve()
    out.touch()
    for name in files:
        seconds = max(options.timeout, SECONDS.get(name, 0))
        request = Request(str(checkout), name, str(out), seconds, real=bool(options.real))
        python = options.real or sys.executable
        run_file(request, functools.partial(start, python, devices=options.devices))
        of_file = [r["outcome"] for r in _rows(out) if r["file"] == name and r["test"]]
        print(f"{name}: {dict(collections.Counter(of_file))}", flush=True)


def run_file(request: Request, start: Callable[[Request], int]) -> None:
    """Run a file to its end, in as many processes as its tests take with them.

    A last row, of no test, says that the end has been reached.
    """
    name, out = request.file, Path(request.out)
    ended = {"file": name, "test": "", "outcome": "ended", "says": ""}
    while ended not in (rows := _rows(out)):
        code = start(request)
        after = _rows(out)
        told = {row["test"] for row in after if row["file"] == name and "outcome" in row}
        begun = [row for row in after if "outcome" not in row and row["test"] not in told]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        crash = {"outcome": "crash", "says": f"the process ended: {how}"}
        added = [ended]
        if begun and code == TOO_LONG:
            says = f"takes longer than {request.seconds:.0f} s"
            added = [begun[-1] | {"outcome": "too long", "says": says}]
        elif begun:
            added = [begun[-1] | crash]
        elif code < 0 and len(after) > len(rows):  # every test has ended
            added = [{"file": name, "test": "(exit)"} | crash, ended]
        elif len(after) == len(rows) and code:
            error = {"file": name, "test": "(file)", "outcome": "error", "says": f"pytest: {how}"}
            added = [error, ended]
        kept = [row for row in after if "outcome" in row]
        out.write_text("".join(json.dumps(row) + "\n" for row in [*kept, *added]))


def start(python: str, request: Request, devices: int = 1) -> int:
    """Run what of a file is to be run in a process; its exit code, below 0 for a signal."""
    environment = {**os.environ, **ENVIRONMENT, **OF_FILES.get(request.file, {})}
    environment["CPU_NUM_DEVICES"] = str(devices)
    environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    text = json.dumps(dataclasses.asdict(request))
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [python, "-m", "tests.torch_xla_suite.inside", text],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what the tests left running


def _rows(out: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_xla_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of pytorch/xla, such as v2.9.0")
    parser.add_argument("--only", default="", help="files that match this regular expression")
    parser.add_argument("--out", type=Path, default=Path("torch_xla_suite.jsonl"))
    parser.add_argument("--devices", type=int, default=1, help="of the CPU")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a test may take")
    parser.add_argument("--real", metavar="PYTHON", help="of an environment with torch_xla")
    parser.add_argument("--merge", type=Path, help="a run's file, to be put into the record")
    return parser.parse_args()


if __name__ == "__main__":
    main()
