"""names.txt, the names of every torch_xla: as data, and as docs/legacy.md counts them."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "legacy.md"
BEGIN, END = "<!-- names -->", "<!-- /names -->"


@dataclass(frozen=True)
class Name:
    """A name of torch_xla; `seed`: the documents of 2019 use it."""

    module: str
    era: str
    name: str
    seed: bool


def read() -> list[Name]:
    """Every line of names.txt, taken apart."""
    names = []
    for line in (HERE / "names.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            module, era, found = (part.strip() for part in line.split("|"))
            names += [Name(module, era, n.rstrip("*"), n.endswith("*")) for n in found.split()]
    return names


def table() -> str:
    """Markdown: the number of names of each module, and their sum."""
    counts = collections.Counter(name.module for name in read())
    rows = [f"| `{module}` | {count} |" for module, count in counts.items()]
    return "\n".join(["| module | names |", "|---|--:|", *rows, f"| **all** | {counts.total()} |"])


def update() -> None:
    """Write the table into the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    update()
