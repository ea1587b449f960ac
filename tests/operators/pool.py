"""Runs cases in a worker process that may die: a dead or stuck worker is the case's outcome."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.codegen import environment_of_users

from .cases import Case
from .sweep import GROUP, Outcome

ROOT = Path(__file__).parents[2]
_MEMORY = 5 << 30  # a worker that has grown beyond is replaced


class _Died(Exception):
    """The worker process has died, or is stuck: how, and of what."""


class Worker:
    """One worker process, started again when it has died; it runs the code that users get.

    environment: another one for it.
    """

    def __init__(
        self,
        door: str,
        timeout: float,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = command
        self._environment = environment_of_users() if environment is None else environment
        self.door = door
        self._timeout = timeout
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process: subprocess.Popen[str] | None = None

    def run(self, case: Case, limit: int | None) -> Outcome:
        """The outcome of a case: "crash" where the process died of it or ran out of time.

        Such a case is run again with a graph for each sample: the reason then names the sample.
        """
        outcome = self._run(case, limit, GROUP)
        if self._process is None:
            alone = self._run(case, limit, 1)
            if self._process is None:
                return alone
            return dataclasses.replace(outcome, ways=alone.ways)
        return outcome

    def right_together(self, cases: Sequence[Case], limit: int) -> list[Case]:
        """Those of the cases that are right in one graph: see `together.right_together`."""
        try:
            found = self._ask({"together": [dataclasses.asdict(c) for c in cases], "limit": limit})
        except _Died:
            return []
        return [Case(**case) for case in found]

    def _run(self, case: Case, limit: int | None, group: int) -> Outcome:
        try:
            request = {"case": dataclasses.asdict(case), "limit": limit, "group": group}
            return Outcome(**self._ask(request))
        except _Died as death:
            return Outcome("crash", str(death))

    def _ask(self, request: dict[str, Any]) -> Any:
        process = self._alive()
        assert process.stdin is not None
        process.stdin.write(json.dumps(request | {"door": self.door}) + "\n")
        process.stdin.flush()
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], self._timeout)
        answer = process.stdout.readline() if ready else ""
        if answer:
            return json.loads(answer)
        self.stop()
        if not ready:
            raise _Died(f"no answer within {self._timeout:.0f} s: {self._last_words()}")
        code = process.returncode
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise _Died(f"the process died ({name}): {self._last_words()}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is not None and _resident(self._process.pid) > _MEMORY:
            self.stop()
        if self._process is None:
            self._log.truncate(0)
            self._process = subprocess.Popen(
                self.command or [sys.executable, "-m", "tests.operators.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                cwd=ROOT,
                env={**self._environment, "XLA_DYNAMO_CACHE_DIR": "0"},
            )
        return self._process

    def _last_words(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().rpartition("\nrunning ")[2][:300].split())


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 if it is gone, or the system does not tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def sweep(
    cases: Iterable[Case],
    door: str,
    limit: Callable[[Case], int | None],
    timeout: float,
) -> Iterator[tuple[Case, Outcome]]:
    """Outcomes of cases, one after the other, as they come."""
    worker = Worker(door, timeout)
    try:
        for case in cases:
            yield case, worker.run(case, limit(case))
    finally:
        worker.stop()
