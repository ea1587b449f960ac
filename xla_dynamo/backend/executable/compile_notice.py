"""A compile that takes long says so while it lasts: what is compiled, why, how long it took before.

On a terminal that is a live line with the seconds, which goes away when it is done; elsewhere one
line on stderr. `XLA_DYNAMO_COMPILE_NOTICE` says after how many seconds, 0 for never.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from torch.fx import Graph

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.bookkeeping import optional
from xla_dynamo.config import config

from .request import Request

_live = threading.Lock()  # a terminal shows one at a time


@contextlib.contextmanager
def shown(request: Request, graph: Graph, platform: str) -> Iterator[None]:
    """Show the compile that the block is, if it takes long."""
    seconds = config().compile_notice
    if not seconds:
        yield
        return
    done = threading.Event()

    @optional(None)
    def watch() -> None:
        if not done.wait(seconds):
            _show(_text(request, graph, platform), done)

    watcher = threading.Thread(target=watch, name="compile notice", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _text(request: Request, graph: Graph, platform: str) -> str:
    before = [
        record.compile_seconds
        for record in metrics.compiles()
        if record.graph == request.name and not record.from_disk
    ]
    last = f"; the last time took {before[-1]:.0f} s" if before else ""
    count = len(fx.calls(graph))
    where = str(first_location(graph)).rpartition("/")[2]
    return (
        f"xla_dynamo: XLA compiles {request.name} ({where}, {count} ops) for "
        f"{platform}: {request.reason}{last}"
    )


def _show(text: str, done: threading.Event) -> None:
    """Until it is done."""
    stream = sys.stderr
    if not stream.isatty():
        print(text, file=stream, flush=True)
        return
    if not _live.acquire(blocking=False):
        return
    from rich import console, progress, table

    try:
        text_column = table.Column(ratio=1, no_wrap=True, overflow="ellipsis")
        columns = (
            progress.SpinnerColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.description}", markup=False, table_column=text_column),
        )
        on = console.Console(file=stream)
        with progress.Progress(*columns, console=on, expand=True, transient=True) as live:
            live.add_task(text, total=None)
            done.wait()
    finally:
        _live.release()
