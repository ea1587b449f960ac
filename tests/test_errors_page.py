"""docs/errors.md tells of every error and warning of the package, by words that these contain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from xla_dynamo import errors
from xla_dynamo.backend import metrics

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "errors.md").read_text()
PACKAGE = ROOT / "xla_dynamo"
CLASSES = {name for name, value in vars(errors).items() if isinstance(value, type)}
WARNINGS = {"FallbackWarning", "RecompileWarning", "BucketWarning"}
# Raised with words that were found elsewhere: the others', or those of a table.
ELSEWHERE = {"NotAvailable", "InstallationError"}


@dataclass(frozen=True)
class Site:
    """A place that raises or warns, and the literal texts of its function."""

    place: str
    kind: str
    text: str


def literals(node: ast.AST) -> str:
    return "".join(
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def sites() -> Iterator[Site]:
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = literals(ast.Module([n for n in tree.body if isinstance(n, ast.Assign)], []))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Call):
                    continue
                owner, _, name = ast.unparse(node.func).rpartition(".")
                warns = (owner, name) == ("warnings", "warn") or name == "warn_once"
                if warns or name in CLASSES - ELSEWHERE:
                    place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                    yield Site(place, name, literals(function) + constants)


def rows(section: str) -> list[list[str]]:
    """The messages of a section's table, each as the parts between its gaps."""
    found = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/errors.md has no section {section}"
    messages = re.findall(r"^\|(?: \w+ \|)? `([^`]+)` \|", found[1], re.MULTILINE)
    return [[part.strip() for part in message.split("...")] for message in messages]


SECTION = dict.fromkeys(("warn", "warn_once"), "Warnings") | {"XlaDynamoError": "Other errors"}
SITES = [*sites()]
# These only hand on a text that they are given: other sites make it.
HAND_ON = {"backend/metrics.py", "compat/execution/gang.py", "backend/runtime/job.py"}


def matches(site: Site, parts: list[str]) -> bool:
    return all(part in site.text for part in parts)


@pytest.mark.parametrize("name", sorted(CLASSES | WARNINGS))
def test_every_class_has_its_place(name: str) -> None:
    assert name in PAGE
    assert name in WARNINGS or issubclass(getattr(errors, name), errors.XlaDynamoError)
    assert hasattr(metrics, name) == (name in WARNINGS)


def test_every_message_is_told() -> None:
    assert len(SITES) > 40
    missing = [
        f"{site.place} {site.kind}"
        for site in SITES
        if site.place.partition(":")[0] not in HAND_ON
        and not any(matches(site, row) for row in rows(SECTION.get(site.kind, site.kind)))
    ]
    assert missing == []


def test_what_is_told_exists() -> None:
    sources = [literals(ast.parse(path.read_text())) for path in PACKAGE.rglob("*.py")]
    for section in [*(CLASSES - ELSEWHERE - {"XlaDynamoError"}), "Other errors", "Warnings"]:
        for parts in rows(section):
            found = any(all(part in text for part in parts) for text in sources)
            assert found, (section, parts)
