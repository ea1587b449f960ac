"""Replicas in threads and processes: their numbers are those of one, and faults of one end all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import run

ROOT = Path(__file__).parents[4]
PACKAGE = "tests.compat.torch_xla.distributed"


@pytest.mark.parametrize(
    ("program", "kind", "count"),
    [
        ("collectives", "threads", 4),
        ("collectives", "fork", 2),
        ("training", "threads", 2),
        pytest.param("training", "fork", 2, marks=pytest.mark.slow),  # DDP is in "distributed"
        ("sharded", "threads", 2),
        ("distributed", "fork", 2),
        pytest.param("dtensor", "fork", 4, marks=pytest.mark.slow),
        *[
            pytest.param(program, kind, count, marks=pytest.mark.slow)
            for program in ("collectives", "training", "sharded", "distributed")
            for kind, count in [("threads", 8), ("fork", 8), ("spawn", 2), ("forkserver", 2)]
            if not (program == "distributed" and kind == "threads")  # it is for processes
        ],
    ],
)
def test_replicas(program: str, kind: str, count: int) -> None:
    printed = run("-m", f"{PACKAGE}.replica_programs", program, kind, str(count), cwd=ROOT)
    for rank in range(count):
        assert f"{program} of rank {rank} ended" in printed
    assert "Gloo" not in printed
    if program == "training":  # two models, four steps: one launch each
        each = 8 * (count if kind == "threads" else 1)
        assert max(map(int, re.findall(r"after (\d+) launches", printed))) == each


DIFFERENT = "different programs"
FAULTS = {
    "raises": ("ZeroDivisionError: only here", "ZeroDivisionError: only here"),
    "ends": ("replica 1 has ended", "rank 1 has ended"),
    "shape": (f"{DIFFERENT}.*float32\\[8\\]", f"{DIFFERENT}.*float32\\[8\\]"),
    "op": (f"{DIFFERENT}.*'?max", f"{DIFFERENT}.*'max'"),
    "rendezvous": ("replica 1 in rendezvous 'alone'", "rendezvous 'alone'"),
    "hangs": (r"replica 1 is at .*time\.sleep", r"rank 1, which .* is at .*replica_faults\.py"),
    "killed": ("", "process 1 terminated with signal SIGKILL"),
    "none": ("nothing was raised", "nothing was raised"),
}


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        ("threads", ["raises", "ends", "shape", "op", "rendezvous", "hangs", "none"]),
        ("fork", ["raises", "shape"]),
        pytest.param(
            "fork", ["ends", "op", "rendezvous", "hangs", "killed", "none"], marks=pytest.mark.slow
        ),
    ],
)
def test_faults_of_one_end_all_soon(kind: str, faults: list[str]) -> None:
    printed = run("-m", f"{PACKAGE}.replica_faults", kind, *faults, cwd=ROOT)
    for fault in faults:
        told = re.search(rf"<{fault}> (.*) </{fault}> after (\d+) s", printed, re.DOTALL)
        assert told, printed
        assert re.search(FAULTS[fault][kind == "fork"], told[1], re.DOTALL), told[1]
        assert int(told[2]) < 20


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_torchrun(fails: bool) -> None:
    program = str(Path(__file__).with_name("torchrun_program.py"))
    arguments = ["--nproc-per-node=2", "--standalone", program, *["fails"][: int(fails)]]
    printed = run("-m", "torch.distributed.run", *arguments, fails=fails, fresh=True, cwd=ROOT)
    if fails:
        assert "ZeroDivisionError: only here" in printed
    else:
        assert {"rank 0 of 2 ended", "rank 1 of 2 ended"} <= set(printed.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_parent_leaves_nobody(sent: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C reaches all of the terminal's group; a kill reaches the parent alone."""
    log = tmp_path / "log"
    with log.open("w") as output:
        parent = subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.replica_faults", "fork", "hangs"],
            cwd=ROOT,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    wait_until(lambda: len(of_group(parent.pid)) >= 3)
    (os.killpg if sent is signal.SIGINT else os.kill)(parent.pid, sent)
    assert parent.wait(30) == -sent
    wait_until(lambda: not of_group(parent.pid))


def of_group(group: int) -> list[str]:
    """The processes of a group."""
    found = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def wait_until(done: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)
