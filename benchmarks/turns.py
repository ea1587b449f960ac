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

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], errors: IO[str]
    ) -> None:
        """errors: a file for what it prints as such."""
        self.error: str | None = None
        self._errors = errors
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._wait()

    def turn(self, seconds: float) -> None:
        """Have it take steps for so long, and wait."""
        if self.error is None:
            with contextlib.suppress(BrokenPipeError):  # it has died since: `_wait` says of what
                self._input.write(f"{seconds}\n")
                self._input.flush()
            self._wait()

    def end(self) -> dict[str, Any]:
        """What it has measured, or its error."""
        if self.error is None:
            self._input.close()
            last = self._wait()
        return {"error": self.error} if self.error is not None else json.loads(last)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):  # a turn that it did not read
            self._input.close()
        self._output.close()
        self._process.wait()

    def _wait(self) -> str:
        """Until it is ready, has ended, or has taken too long; the last line of what it printed."""
        line, start = "", time.monotonic()
        late = threading.Timer(LIMIT, self._process.kill)
        late.start()
        try:
            for line in self._output:
                if line.strip() == READY:
                    return line
            code = self._process.wait()
        finally:
            late.cancel()
        if time.monotonic() - start >= LIMIT:
            self.error = f"took longer than {LIMIT} seconds"
        elif code:
            self._errors.seek(0)
            self.error = self._errors.read().strip()[-500:] or f"ended with {code}"
        return line


@contextlib.contextmanager
def engines(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> Iterator[list[Engine]]:
    """A process for each command, which compile one after another."""
    with contextlib.ExitStack() as stack:
        started = []
        for command in commands:
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            started.append(each := Engine(command, environment, errors))
            stack.callback(each.close)
        yield started
