"""The forms for issues: valid, and each asks for what the doctor says, by a command that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xla_dynamo import __main__

FORMS = sorted((Path(__file__).parents[1] / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_asks_for_what_the_doctor_says(form: Path) -> None:
    text = form.read_text()
    assert text.startswith("name: ")
    ids = re.findall(r"^    id: (\w+)$", text, re.MULTILINE)
    assert len(ids) == len(set(ids)) == text.count("  - type: ") >= 2
    assert ids[-1] == "doctor"
    assert "`python -m xla_dynamo doctor --json`" in text


def test_commands_of_the_forms_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(FORMS) == 4
    commands = {
        command
        for form in FORMS
        for command in re.findall(r"python -m xla_dynamo (\w+)", form.read_text())
    }
    assert commands == {"doctor", "check"}
    for command in commands:
        with pytest.raises(SystemExit, match="0"):
            __main__.main([command, "--help"])
        assert "--json" in capsys.readouterr().out
