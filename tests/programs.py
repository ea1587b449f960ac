"""Programs -> what they print, each in a Python process of its own; calls, each in a thread."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_TIMEOUT = 600
# Variables that are read while torch or jax is imported, or by Python before.
_READ_AT_IMPORT = ("JAX_", "TORCH_", "TORCHDYNAMO_", "PYTORCH_", "PYTHON", "XLA_FLAGS")
# What nanobind says when a fork ends, of classes that the server has imported (Triton's, where
# torch brings it): they outlive the interpreter, as the server's objects are not collected.
_LEAKS = re.compile(
    r"(^(nanobind: | - leaked | - \.\.\. skipped |See https://nanobind).*(\n|\Z))+\Z", re.MULTILINE
)


def python(code: str, *, fails: bool = False, fresh: bool = False, **environment: str) -> str:
    """Run a program with torch_xla's names available; returns stdout and stderr together."""
    program = "import xla_dynamo.compat\n" + textwrap.dedent(code)
    return run("-c", program, fails=fails, fresh=fresh, cwd=None, **environment)


def run(
    *arguments: str,
    fails: bool = False,
    fresh: bool = False,
    cwd: Path | None = None,
    **environment: str,
) -> str:
    """Run `python *arguments` and return stdout and stderr together.

    The process is a fork that has imported torch and jax; or, for programs about the start and the
    end of a process, forks, or signals, a `fresh` one.
    """
    code, printed = outcome(*arguments, fresh=fresh, cwd=cwd, **environment)
    assert (code != 0) == fails, f"exit code {code}\n{printed}"
    return printed


def outcome(
    *arguments: str, fresh: bool = False, cwd: Path | None = None, **environment: str
) -> tuple[int, str]:
    """The exit code of `python *arguments`, and its stdout and stderr together."""
    whole = os.environ | environment
    start = _spawn if fresh or _read_at_import(whole) != _Server.start().environment else _fork
    return start(arguments, cwd or Path.cwd(), whole)


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_READ_AT_IMPORT)}


def _spawn(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout


def _fork(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile("r", errors="replace") as output:
        request = {
            "arguments": arguments,
            "folder": str(cwd),
            "environment": dict(environment),
            "output": output.name,
        }
        code = _Server.start().run(request)
        return code, _LEAKS.sub("", output.read())


class _Server:
    """A process of `program_server`, and what of its environment a fork cannot change."""

    def __init__(self) -> None:
        self.environment = _read_at_import(os.environ)
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("program_server.py"))],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # no threads in what forks
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self._stop)

    @staticmethod
    @functools.cache
    def start() -> _Server:
        """This process's server, started at the first call."""
        return _Server()

    def run(self, request: Mapping[str, Any]) -> int:
        """The exit code of a program.

        Raises:
            subprocess.TimeoutExpired: it has been killed.
        """
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        with self._lock:
            to.write(json.dumps(request) + "\n")
            to.flush()
            child = int(answers.readline())
            try:
                if not select.select([answers], [], [], _TIMEOUT)[0]:
                    raise subprocess.TimeoutExpired(request["arguments"], _TIMEOUT)
            except BaseException:
                os.killpg(child, signal.SIGKILL)
                answers.readline()
                raise
            return int(answers.readline())

    def _stop(self) -> None:
        self._process.communicate()


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
