"""Processes of engine.py that measure in turns, so that a machine that slows down slows all alike.

On a shared machine the speed of a minute is not that of the next one. All engines compile first;
then each takes some steps, round and round, while the others wait.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

LIMIT = 300  # seconds to be ready: to compile and take the first steps, or for one turn
READY = "ready"  # what engine.py prints


class Engine:
    """A process of engine.py, until it has failed or said what it measured."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.error: str | None = None
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # until `close`
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._wait()

    def turn(self, seconds: float) -> None:
        """Have it take steps for so long, and wait."""
        if self.error is None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has died since: `_wait` says of what
                self._process.stdin.write(f"{seconds}\n")
                self._process.stdin.flush()
            self._wait()

    def end(self) -> dict[str, Any]:
        """What it has measured, or its error."""
        if self.error is None:
            rest, _ = self._process.communicate(timeout=LIMIT)
            if self._process.returncode == 0:
                return json.loads(rest.splitlines()[-1])
            self._fail()
        return {"error": self.error}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _wait(self) -> None:
        """Until it is ready, has ended, or has taken too long."""
        assert self._process.stdout is not None
        late = threading.Timer(LIMIT, self._process.kill)
        start = time.monotonic()
        late.start()
        try:
            for line in self._process.stdout:
                if line.strip() == READY:
                    return
        finally:
            late.cancel()
        self._process.wait()
        if time.monotonic() - start >= LIMIT:
            self.error = f"took longer than {LIMIT} seconds"
        else:
            self._fail()

    def _fail(self) -> None:
        self._errors.seek(0)
        code = self._process.returncode
        self.error = self._errors.read().strip()[-500:] or f"ended with {code}"


@contextlib.contextmanager
def engines(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> Iterator[list[Engine]]:
    """A process for each command, which compile one after another."""
    with contextlib.ExitStack() as stack:
        started = []
        for command in commands:
            started.append(each := Engine(command, environment))
            stack.callback(each.close)
        yield started
