"""The table of differences: its names are there, and docs/legacy.md tells of the same ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from xla_dynamo.check import names
from xla_dynamo.check.findings import State
from xla_dynamo.check.table import DIFFERENCES, Given, used

PAGE = Path(__file__).parents[2] / "docs" / "legacy.md"
# Of these, legacy.md tells what is better here: a script need not change, nor know.
BETTER = {"xs.mark_sharding", "torch_xla.stablehlo", "xm.optimization_barrier_"}
MODULES = {
    "xm": "torch_xla.core.xla_model",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
    "xs": "torch_xla.distributed.spmd",
}


def call(text: str) -> ast.Call:
    found = ast.parse(text, mode="eval").body
    assert isinstance(found, ast.Call)
    return found


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.name)
def test_a_row_is_of_a_name_that_is_there(row) -> None:
    assert names.exists(row.name)
    made = call(f"f({row.when.keyword}=x)") if isinstance(row.when, Given) else None
    assert names.judge(row.name, made).why == row.why
    assert row.why.endswith(".")
    assert not row.remedy.endswith(".")
    assert row.state in (State.DIFFERS, State.NO_EFFECT)
    if row.when is not used:
        assert names.judge(row.name).state is State.WORKS


def test_names_of_the_page_are_known_to_differ() -> None:
    table = PAGE.read_text().split("## What is different")[1].split("\n## ")[0]
    told = set()
    for line in table.splitlines():
        first = line.split("|")[1] if line.startswith("|") else ""
        told |= set(re.findall(r"`((?:xm|xmp|xs|torch_xla)\.[\w.]+)", first))
    assert told >= {"xmp.spawn", "xm.send", "xm.xla_device"}
    for name in told - BETTER:
        module, _, rest = name.partition(".")
        whole = f"{MODULES.get(module, module)}.{rest}"
        rows = {row.name for row in DIFFERENCES}
        known = whole in rows or any(row.startswith(f"{whole}.") for row in rows)
        partly = names.exists(whole) and names.judge(f"{whole}.Op").state is State.MISSING
        assert known or names.judge(whole).state is State.MISSING or partly, name


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("spawn(f, (), 8)", True),
        ("spawn(f, nprocs=8)", True),
        ("spawn(f, nprocs=cores)", True),
        ("spawn(f, nprocs=1)", False),
        ("spawn(f, nprocs=None)", False),
        ("spawn(f)", False),
    ],
)
def test_arguments(text: str, given: bool) -> None:
    assert Given("nprocs", 2, above=1)(call(text)) is given


def test_arguments_that_change_nothing() -> None:
    scale = Given("scale", 2, but=1.0)
    assert [scale(call(f"f(kind, x, scale={text})")) for text in ("1.0", "0.5", "1 / n")] == [
        *(False, True, True)
    ]
