"""Every python block of the documentation runs: a page's blocks are one program, in order.

Commands of its other blocks exist, with their options; tests/test_examples.py runs the examples'.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
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
    if "aot_compile" in program:  # PyTorch reads when it is imported that its cache is on
        folder = str(tmp_path / "torch")
        on = {"TORCHINDUCTOR_AUTOGRAD_CACHE": "1", "TORCHINDUCTOR_CACHE_DIR": folder}
        run(str(script), cwd=tmp_path, fresh=True, **on)
    else:
        run(str(script), cwd=tmp_path)


def test_every_page_is_in_the_sidebar():
    """Of the site, which is not built here: `make docs` also checks links."""
    settings = (ROOT / "docs" / "site" / "conf.py").read_text()
    table = re.search(r"^NAVIGATION = (.*?^\})", settings, re.MULTILINE | re.DOTALL)
    assert table
    pages = [page for part in ast.literal_eval(table[1]).values() for page in part.values()]
    assert sorted(pages) == sorted(
        ["self", "/CONTRIBUTING", "/CHANGELOG"]
        + [page.stem for page in (ROOT / "docs").glob("*.md") if page.stem != "index"]
    )


def test_program_of_keeps_python_and_line_numbers():
    page = (
        "intro\n```python\na = 1\n```\n```text\nno\n```\n```bash\nls\n```\n```python\nb = 2\n```\n"
    )
    assert program_of(page).splitlines() == ["", "", "a = 1", *[""] * 8, "b = 2", ""]


def commands(page: str) -> Iterator[list[str]]:
    """The words of each command in its blocks that are not Python, without variables before it."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines() if language != "python" else ():
            line = re.sub(r"^(\$ )?(\w+=\S* )*", "", line)
            if re.match(r"(make|python|torchrun) ", line):
                yield shlex.split(line, comments=True)


def unknown(command: list[str]) -> list[str]:
    """The words of a command that this checkout lacks: a target, a module, a file, an option."""
    if command[0] == "make":
        makefile = (ROOT / "Makefile").read_text()
        return [] if re.search(rf"^{command[1]}:", makefile, re.MULTILINE) else command[1:2]
    sources, missing = "", []
    for before, word in itertools.pairwise(command):
        if before == "-m" or word.endswith(".py"):
            if word == "pytest" or (before != "-m" and "/" not in word):
                break  # not ours, and what follows is for it
            place = ROOT / (word.replace(".", "/") if before == "-m" else word)
            files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
            sources = "".join(file.read_text() for file in files if file.is_file())
            missing += [] if sources else [word]
        elif word.startswith("--") or before == "xla_dynamo":
            missing += [word] if sources and f'"{word}"' not in sources else []
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(page):
    found = [*commands(page.read_text())]
    assert [(command, unknown(command)) for command in found if unknown(command)] == []


def test_what_is_unknown_of_a_command():
    page = "```bash\nA=1 python -m xla_dynamo chek x.py  # c\n$ make nothing\nls\n```\n"
    assert [unknown(each) for each in commands(page)] == [["chek"], ["nothing"]]
    assert unknown(["python", "examples/digits.py", "--epochs", "3", "--epoch", "4"]) == ["--epoch"]
    assert unknown(["python", "-m", "tests.nowhere"]) == ["tests.nowhere"]
    assert unknown(["python", "-m", "tests.fuzz", "--graphs", "3"]) == []
