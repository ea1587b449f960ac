"""When a report begins and ends, and the names of its files.

One process has one report at a time. It is written at the end of a `with` block, by `close()`, or
when the process ends: also by an exception or Ctrl-C, not by another signal.

A run of several processes has one page for each: the first has the name that was given, a replica
(xmp.spawn, torchrun) adds its rank (run.rank3.html), any other process that compiles something its
number (run.pid4711.html).
"""

from __future__ import annotations

import atexit
import glob
import html
import os
import sys
import time
from pathlib import Path
from types import TracebackType

from xla_dynamo.backend import observers
from xla_dynamo.bookkeeping import optional

from . import page, snapshot, terminal
from .gather import Gatherer
from .model import Run

TERMINAL = "-"
_VARIABLE, _FIRST = "XLA_DYNAMO_REPORT", "_XLA_DYNAMO_REPORT_FIRST"
_current: Report | None = None


class Report:
    """A report that is being gathered; as a context manager, of a block."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Begin it.

        Raises:
            OSError: its folder cannot be made.
            InstallationError: jinja2 is missing.
        """
        global _current
        self._to_terminal = os.fspath(path) == TERMINAL
        self._path = Path(path).absolute()
        if not self._to_terminal:
            page.require()
            self._path.parent.mkdir(parents=True, exist_ok=True)
        if _current is not None:
            _current.close()
        _current = self
        self._began = time.time()
        self._gathered = Gatherer()
        self._is_open, self._ends = True, False
        observers.observe(self._gathered)
        atexit.register(self._at_exit)

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __str__(self) -> str:
        """What the page says, as text."""
        return terminal.text(self.run())

    def _repr_html_(self) -> str:
        """The page, for a notebook."""
        inside = html.escape(page.html(self.run()), quote=True)
        return f'<iframe srcdoc="{inside}" style="width: 100%; height: 800px; border: 0"></iframe>'

    def run(self) -> Run:
        """What is known until now, as data."""
        path = self.path
        beside = sorted(
            self._path.parent.glob(f"{glob.escape(self._path.stem)}.*{self._path.suffix}")
        )
        others = [p.name for p in beside if p != path and p.stat().st_mtime >= self._began]
        return snapshot.run_of(self._gathered, _process(), others)

    @property
    def path(self) -> Path:
        """The file of this process."""
        added = _process().replace(" ", "")
        return self._path.with_suffix(f".{added}{self._path.suffix}") if added else self._path

    def write(self) -> Path:
        """Write the page as it is now, or print it, if the path is "-"."""
        if self._to_terminal:
            print(self, file=sys.stderr)
        else:
            page.write(self.run(), self.path)
        return self.path

    @optional(None)
    def close(self) -> None:
        """End it, and write the page; a second call does nothing."""
        global _current
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self._at_exit)
        try:
            if not _process() or _is_replica() or self._gathered.programs:
                if not self._ends:  # else JAX may have closed the device
                    self._gathered.look()
                self.write()  # while it hears of runs, for this settles which have ended
        finally:
            if _current is self:
                _current = None
                observers.observe(None)
                self._gathered.end()

    def _at_exit(self) -> None:
        was_open, self._ends = self._is_open, True
        self.close()
        if was_open and not self._to_terminal and self.path.exists():
            print(f"xla_dynamo: the report of this run is {self.path}", file=sys.stderr)


def report(path: str | os.PathLike[str]) -> Report:
    """Gather what is compiled and run from now on, for one HTML page (or text, for "-").

    The page is written when the process ends, at the end of a `with` block, or by close().

    Raises:
        OSError: its folder cannot be made.
        InstallationError: jinja2 is missing.
    """
    return Report(path)


@optional(None)
def begin_if_asked() -> None:
    """Begin the report that XLA_DYNAMO_REPORT names, unless there is one."""
    asked = observers.asked()
    if asked is not None and _current is None:
        os.environ.setdefault(_FIRST, str(os.getpid()))
        Report(asked)


def begin_run(path: str) -> None:
    """Begin the report of `python -m xla_dynamo run`; its processes get theirs by the environment.

    Raises:
        OSError, InstallationError: see `Report`.
    """
    os.environ[_FIRST] = str(os.getpid())
    os.environ[_VARIABLE] = path if path == TERMINAL else os.path.abspath(path)
    Report(path)


def _end() -> None:
    if _current is not None:
        _current.close()


def _is_replica() -> bool:
    return observers.rank is not None or int(os.environ.get("WORLD_SIZE") or 1) > 1


def _process() -> str:
    """What tells this process from the first one: "rank 3", "pid 4711"; "" for that."""
    if observers.rank is not None:
        return f"rank {observers.rank}"
    if _is_replica() and os.environ.get("RANK"):
        return f"rank {os.environ['RANK']}"
    first = os.environ.get(_FIRST)
    return "" if first in (None, str(os.getpid())) else f"pid {os.getpid()}"


def _forget() -> None:
    """A fork has no part in its parent's report; a replica begins its own."""
    global _current
    if _current is not None:
        atexit.unregister(_current._at_exit)
        _current._is_open = False
        _current._gathered.end()
        _current = None
        observers.observe(None)


observers.begin_report, observers.end_report = begin_if_asked, _end
os.register_at_fork(after_in_child=_forget)
