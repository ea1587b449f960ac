"""The examples that need other libraries: small sizes, and what each has to print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Example:
    """legacy: whether it is a script for torch_xla. wanted: a pattern of what it prints."""

    arguments: tuple[str, ...]
    wanted: str
    legacy: bool = False


EXAMPLES: Mapping[str, Example] = MappingProxyType(
    {
        "hf_trainer": Example(("--steps", "20"), r"not on XLA  nothing\nright +\d"),
        "accelerate_loop": Example(
            ("--epochs", "2"), r"epoch 2 on xla:0: [89]\d\.\d\d% right\nprograms  \d\n", legacy=True
        ),
        "lightning_fit": Example(
            ("--epochs", "2"), r"epoch 2 on xla:0: [89]\d\.\d\d% right\n", legacy=True
        ),
        "diffusers_sample": Example(
            ("--steps", "10", "--sampling-steps", "3"), r"programs  1, for 3 steps\n"
        ),
        "torchvision_resnet": Example(("--steps", "3"), r"programs +2\nnot on XLA  nothing\n"),
    }
)


def outcome(name: str, seconds: float) -> str:
    """Run an example: "as it should be", or the last line of what it printed.

    Raises:
        subprocess.TimeoutExpired: it did not end.
    """
    example = EXAMPLES[name]
    run = ["-m", "xla_dynamo", "run"] if example.legacy else []
    command = [sys.executable, *run, str(FOLDER / f"{name}.py"), *example.arguments]
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent)}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
        )
    if done.returncode == 0 and re.search(example.wanted, done.stdout):
        return "as it should be"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit code {done.returncode}"
