"""Every python block of the documentation runs: a page's blocks are one program, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def program_of(page: str) -> str:
    """Its python blocks, every other line blank: line numbers in errors are the page's."""
    lines, inside = [], False
    for line in page.splitlines():
        fence = re.match(r"\s*```(\w*)", line)
        if fence:
            inside = not inside and fence[1] == "python"
        lines.append("" if fence or not inside else line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page, tmp_path):
    program = program_of(page.read_text())
    compile(program, str(page), "exec")
    if not program.strip():
        return  # prose only
    script = tmp_path / page.with_suffix(".py").name
    script.write_text(program)
    run(str(script), cwd=tmp_path)


def test_program_of_keeps_python_and_line_numbers():
    page = (
        "intro\n```python\na = 1\n```\n```text\nno\n```\n```bash\nls\n```\n```python\nb = 2\n```\n"
    )
    assert program_of(page).splitlines() == ["", "", "a = 1", *[""] * 8, "b = 2", ""]
