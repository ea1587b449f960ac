"""A kernel executes notebooks, as Jupyter's does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.notebooks.outputs import faults
from tests.programs import outcome, run

ROOT = Path(__file__).parents[2]


def notebook(tmp_path: Path, code: str) -> Path:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": []}
    whole = {"cells": [cell | {"source": code}], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    path = tmp_path / "note.ipynb"
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.slow
def test_outputs_are_written_with_what_they_are_of(tmp_path: Path) -> None:
    path = notebook(tmp_path, "print(6 * 7)\n!echo from a shell")
    assert faults(path) != []
    run("-m", "tests.notebooks.execute", str(path), cwd=ROOT, fresh=True)
    assert faults(path) == []
    (cell,) = json.loads(path.read_text())["cells"]
    assert "".join(cell["outputs"][0]["text"]) == "42\nfrom a shell\n"


@pytest.mark.slow
def test_what_a_cell_raises_ends_it_and_nothing_is_written(tmp_path: Path) -> None:
    path = notebook(tmp_path, "1 / 0")
    before = path.read_text()
    code, printed = outcome("-m", "tests.notebooks.execute", str(path), cwd=ROOT, fresh=True)
    assert code != 0
    assert "ZeroDivisionError" in printed
    assert path.read_text() == before


@pytest.mark.slow
def test_the_notebook_of_the_examples_runs_from_top_to_bottom() -> None:
    example = ROOT / "examples" / "start_here.ipynb"
    printed = run("-m", "tests.notebooks.execute", "--dry", str(example), cwd=ROOT, fresh=True)
    assert "start_here.ipynb: executed in" in printed
