"""Programs -> what they print, each in a Python process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def python(code: str, *, fails: bool = False, **environment: str) -> str:
    """Run a program with torch_xla's names available; returns stdout and stderr together."""
    program = "import xla_dynamo.compat\n" + textwrap.dedent(code)
    return run("-c", program, fails=fails, **environment)


def run(*arguments: str, fails: bool = False, cwd: Path | None = None, **environment: str) -> str:
    """Run `python *arguments` and return stdout and stderr together."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout
