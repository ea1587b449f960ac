"""The examples, run as a newcomer runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_digits_learns_on_xla_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "digits.py", "--epochs", "4"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    report = dict(re.findall(r"^(\S.*?)  +(.*)$", done.stdout, re.MULTILINE))
    assert float(report["held-out accuracy"].split("%")[0]) > 97
    assert report["not on XLA"] == "nothing"
    # Forward, backward, the optimizer, and the model in eval mode: one shape each.
    assert report["compiled"].startswith("4 programs")
    assert report["device"].startswith("cpu/")


def test_the_accelerator_check_trains_right_on_a_cpu(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "tpu_check.py", "--models", "LSTM", "--steps", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r" right ", done.stdout)) == 2
    assert "ops that ran on the CPU: 0" in done.stdout


@pytest.mark.slow
def test_the_accelerator_check_trains_right_in_several_processes(tmp_path):
    check = [sys.executable, ROOT / "examples" / "tpu_check.py", "--spawn", "2", "--steps", "1"]
    done = subprocess.run(
        [*check, "--models", "LSTM"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"LSTM +2 by xmp.spawn .* right ", done.stdout)
