"""A notebook -> a script: its code cells, without the lines that install packages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

_SHELL = re.compile(r"^\s*[!%].*$", re.MULTILINE)
_RANKS = re.compile(r"\bnprocs=8\b")


def script_of(notebook: Path, flags: Mapping[str, int], ranks: int) -> str:
    """The cells as one program.

    flags: numbers for the notebook's own settings, `FLAGS['num_epochs'] = 10` say.
    ranks: in the place of the eight of nprocs=8.
    """
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    text = _SHELL.sub("pass", "\n\n".join(code)) + "\n"
    for name, value in flags.items():
        text = re.sub(rf"(\[['\"]{name}['\"]\] = )\d+", rf"\g<1>{value}", text)
    return _RANKS.sub(f"nprocs={ranks}", text)
