"""Executes notebooks in a fresh kernel, and writes their outputs into them: `make notebook`.

    python -m tests.notebooks.execute examples/start_here.ipynb

What a cell raises ends it, and nothing is written. The kernel has a disk cache of its own, so that
compile times are those of a first run. Needs the extra `notebook`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from .outputs import code_cells, digest, faults

_PATIENCE = 600  # seconds for a cell


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs, and a note in its metadata of which code they are of."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as cache:
        NotebookClient(
            notebook,
            timeout=_PATIENCE,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        ).execute(env=os.environ | {"XDG_CACHE_HOME": cache})
    for cell in code_cells(notebook):
        for output in cell["outputs"]:
            if output["output_type"] == "stream":  # a shell command writes to a terminal
                output["text"] = output["text"].replace("\r\n", "\n")
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "executed": digest(notebook),
    }
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--dry", action="store_true", help="execute, and write nothing")
    options = parser.parse_args()
    found = []
    for path in options.paths:
        start = time.monotonic()
        executed = execute(path)
        print(f"{path}: executed in {time.monotonic() - start:.0f} s", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, path.name) if options.dry else path
            nbformat.write(executed, target)
            found += [f"{path}: {fault}" for fault in faults(target)]
    print("\n".join(found), end="\n" if found else "")
    return len(found)


if __name__ == "__main__":
    raise SystemExit(main())
