"""A run as text, with rich and without it."""

from __future__ import annotations

import sys

import pytest

from tests.report import runs
from xla_dynamo.reporting import terminal

pytestmark = pytest.mark.spine
WORDS = ("train.py", "0/1 forward", "train.py:8", "sizes or dtypes", "x dimension 0 changed from")
MORE = (
    "Choose buckets.",
    "aten::nonzero",
    "uploads",
    "4 KiB",
    "60 (barriers), median 5 ms",
    "3 programs, 1 from disk",
)


@pytest.mark.parametrize("rich", [True, False])
def test_a_run_as_text(rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    text = terminal.text(runs.run(), width=160, colour=False)
    assert [word for word in (*WORDS, *MORE) if word not in text] == []
    assert "\x1b" not in text


def test_words_of_a_user_are_no_markup() -> None:
    hostile = runs.run(title="[bold]x[/bold]", programs=(runs.program(0, name="[red]a[/red]"),))
    text = terminal.text(hostile, width=160, colour=True)
    assert "[bold]x[/bold]" in text
    assert "[red]a[/red]" in text


def test_many_programs_are_the_longest() -> None:
    many = tuple(runs.program(number, total_ms=float(number)) for number in range(100))
    text = terminal.text(runs.run(programs=many), width=160, colour=False)
    assert "The 40 longest programs" in text
    assert "0/99 forward" in text
    assert "0/5 forward" not in text.partition("Recompiles")[0]
