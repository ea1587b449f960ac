"""docs/api.md has every public name, option, variable and command; README's links work."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

import xla_dynamo
from xla_dynamo import __main__, errors
from xla_dynamo.backend.options import Options

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "xla_dynamo"
PAGE = (ROOT / "docs" / "api.md").read_text()


def public_names() -> list[str]:
    """What `xla_dynamo/__init__.py` offers: imported under its own name, or defined there."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    names = [a.asname for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names]
    names += [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    return sorted({name for name in names if name and not name.startswith("_")} | {"__version__"})


@pytest.mark.parametrize("name", public_names())
def test_public_names(name):
    assert hasattr(xla_dynamo, name)
    assert re.search(rf"\bxla_dynamo\.{name}\b", PAGE)


def test_errors():
    own = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert own <= set(re.findall(r"autoexception:: xla_dynamo\.(?:errors\.)?(\w+)$", PAGE, re.M))


def test_options():
    told = re.findall(r"^ {4,8}(\w+): ", str(Options.__doc__), re.M)
    assert told == [field.name for field in dataclasses.fields(Options)]


def test_variables():
    sources = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    read = set(re.findall(r'"(XLA_DYNAMO_[A-Z_]*[A-Z])"', sources))
    rows = re.findall(r"^\| `(XLA_DYNAMO_[A-Z_]+)` \|", PAGE, re.M)
    assert sorted(rows) == sorted(set(rows))
    assert set(rows) == read


def test_commands(capsys):
    with pytest.raises(SystemExit):
        __main__.main(["--help"])
    commands = re.search(r"\{([\w,]+)\}", capsys.readouterr().out)
    assert commands
    for command in commands[1].split(","):
        assert f"| `python -m xla_dynamo {command}" in PAGE


def test_readme_is_a_page_whose_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link.partition("#")[0]).is_file()] == []
