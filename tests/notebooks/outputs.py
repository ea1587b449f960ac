"""What is kept of an executed notebook: outputs of its own cells, small, without home folders."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

IMAGE = 40_000  # bytes of a plot
FILE = 250_000
_HOME = re.compile(r"/(?:root|home|Users|work|tmp/wt)/[^\s'\"]*")

Cell = Mapping[str, Any]


def source_of(cell: Cell) -> str:
    """The text of a cell, which files have as lines."""
    return "".join(cell["source"])


def code_cells(notebook: Mapping[str, Any]) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(notebook: Mapping[str, Any]) -> str:
    """Of the code: what the metadata of an executed notebook say was executed."""
    sources = [source_of(cell) for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def faults(path: Path) -> list[str]:
    """What should not be committed so, in words; empty where all is well."""
    notebook = json.loads(path.read_text())
    found = [fault for cell in code_cells(notebook) for fault in _of_cell(cell)]
    if notebook["metadata"].get("executed") != digest(notebook):
        found.append("the outputs are not of these cells: make notebook")
    if path.stat().st_size > FILE:
        found.append(f"the file has {path.stat().st_size} bytes, more than {FILE}")
    return found


def _of_cell(cell: Cell) -> Iterator[str]:
    name = source_of(cell).partition("\n")[0]
    if cell["execution_count"] is None:
        yield f"{name}: was not executed"
    for output in cell["outputs"]:
        if output["output_type"] == "error":
            yield f"{name}: {output['ename']}"
        if output.get("name") == "stderr":
            yield f"{name}: warns {''.join(output['text'])[:80]}"
        data = output.get("data", {})
        if len(data.get("image/png", "")) * 3 // 4 > IMAGE:
            yield f"{name}: a plot of more than {IMAGE} bytes"
        text = "".join([*output.get("text", ()), *data.get("text/plain", ())])
        yield from (f"{name}: shows {home}" for home in _HOME.findall(text))
