"""A run -> one HTML page that needs nothing else, and back.

The page's policy lets it fetch nothing and run no script but its own (by hash); what comes from the
user's program is escaped. The run is inside as JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from xla_dynamo.errors import InstallationError

from . import drawing, units
from .causes import CAUSES
from .model import Run, from_json

_FILES = Path(__file__).with_name("files")
_DATA = re.compile(r'<script type="application/json" id="run">(.*?)</script>', re.DOTALL)


def require() -> Any:
    """jinja2, which torch brings.

    Raises:
        InstallationError: it is not there.
    """
    try:
        import jinja2
    except ImportError as error:
        raise InstallationError(
            "A report's page needs jinja2, which torch depends on: pip install jinja2. As text it "
            'needs nothing: xla_dynamo.report("-"), or run --report -.'
        ) from error
    return jinja2


def html(run: Run) -> str:
    """The page."""
    jinja2 = require()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FILES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(seconds=units.seconds, ms=units.milliseconds, size=units.size)
    script = (_FILES / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        run=run,
        data=run.to_json(),
        line=drawing.time_line(run),
        peak=drawing.peak(run.uses),
        causes={c: t for c, t in CAUSES.items() if any(p.cause == c for p in run.programs)},
        graph=drawing.graph,
        listing=drawing.listing,
        style=(_FILES / "page.css").read_text(),
        script=script,
        digest=digest,
        compiling=sum(p.lowering + p.compiling for p in run.programs),
        recompiles=sum(p.cause != "first" for p in run.programs),
        from_disk=sum(p.from_disk for p in run.programs),
        running=sum(p.total_ms for p in run.programs) / 1e3,
        runs=sum(p.runs for p in run.programs),
    )


def write(run: Run, path: Path) -> None:
    """Write the page; who reads it meanwhile has the old one.

    Raises:
        OSError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(html(run), encoding="utf-8")
    os.replace(partial, path)


def read(path: Path) -> Run:
    """The run of a page.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such page, or one of another version.
    """
    found = _DATA.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{path} is not a page of xla_dynamo.report.")
    try:
        return from_json(json.loads(found[1]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is a page of another version: {error!r}.") from error
