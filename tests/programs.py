"""Programs -> what they print, each in a Python process of its own; calls, each in a thread."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def run_in_threads(calls: list[Callable[[], Any]]) -> list[Any]:
    """The results of the calls, begun at once in a thread each."""
    results: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def body(index: int) -> None:
        barrier.wait()
        try:
            results[index] = calls[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=body, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
