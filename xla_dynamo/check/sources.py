"""Files and folders -> the Python text of each script, module and notebook in them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SUFFIXES = (".py", ".ipynb")
_NOT_THE_USERS = {"__pycache__", "node_modules", "site-packages", "build", "dist"}
# Lines of a notebook that are no Python: shell commands, magics, questions.
_MAGIC = re.compile(r"^(\s*)[!%?].*$|^(\s*)[^#\n'\"]*\?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """Python text; `cells` has the first line of each cell of a notebook."""

    path: Path
    text: str
    cells: tuple[int, ...] = ()

    def place(self, line: int) -> str:
        """A line as the user counts it: "12", or in a notebook "cell 3, line 2"."""
        if not self.cells:
            return str(line)
        number = sum(first <= line for first in self.cells)
        return f"cell {number}, line {line - self.cells[number - 1] + 1}"


def read(path: Path) -> Source:
    """A script, or the code cells of a notebook, one below the other.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
        ValueError: it is called a notebook, and is none.
    """
    text = path.read_text(encoding="utf-8-sig")
    return _notebook(path, text) if path.suffix == ".ipynb" else Source(path, text)


def _notebook(path: Path, text: str) -> Source:
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        codes = ["".join(cell["source"]) for cell in cells]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a notebook: {error}") from error
    lines: list[str] = []
    firsts = []
    for code in codes:
        firsts.append(len(lines) + 1)
        lines += "" if code.startswith("%%") else _MAGIC.sub(r"\1\2pass", code).split("\n")
    return Source(path, "\n".join(lines) + "\n", tuple(firsts))


def find(paths: Iterable[Path]) -> Iterator[Path]:
    """The files named, and those in the folders named, in order; not those of environments."""
    for path in paths:
        if path.is_dir():
            yield from _within(path)
        else:
            yield path


def _within(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        is_environment = "pyvenv.cfg" in files
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _NOT_THE_USERS
        )
        if is_environment:
            folders.clear()
            continue
        yield from (Path(here, name) for name in sorted(files) if name.endswith(_SUFFIXES))
