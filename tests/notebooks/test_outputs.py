"""Faults of a notebook that is not fit to be committed are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.outputs import FILE, IMAGE, digest, faults

STREAM = {"output_type": "stream", "name": "stdout", "text": ["loss 0.5\n"]}
PLOT = {"output_type": "display_data", "data": {"image/png": "A" * 400, "text/plain": ["<Figure>"]}}


def executed(tmp_path: Path, *outputs: dict[str, Any], count: int | None = 1, **more: Any) -> Path:
    """A notebook of one code cell with the outputs."""
    code = {"cell_type": "code", "source": ["print(1)\n", "2"], "execution_count": count}
    prose = {"cell_type": "markdown", "source": ["# a"]}
    notebook = {"cells": [prose, {**code, "outputs": outputs}]}
    notebook["metadata"] = {"executed": digest(notebook), **more}
    path = tmp_path / "note.ipynb"
    path.write_text(json.dumps(notebook))
    return path


def test_an_executed_notebook_has_no_fault(tmp_path: Path) -> None:
    assert faults(executed(tmp_path, STREAM, PLOT)) == []


def test_other_cells_than_the_executed_ones(tmp_path: Path) -> None:
    path = executed(tmp_path, STREAM)
    path.write_text(path.read_text().replace("print(1)", "print(3)"))
    assert faults(path) == ["the outputs are not of these cells: make notebook"]
    assert len(faults(executed(tmp_path, STREAM, executed=None))) == 1


def test_prose_may_change_without_a_run(tmp_path: Path) -> None:
    path = executed(tmp_path, STREAM)
    path.write_text(path.read_text().replace("# a", "# b"))
    assert faults(path) == []


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        ({"output_type": "error", "ename": "ValueError"}, "print(1): ValueError"),
        ({**STREAM, "name": "stderr"}, "print(1): warns loss 0.5\n"),
        ({**STREAM, "text": ["in /root/x.py, 1"]}, "print(1): shows /root/x.py,"),
        ({**PLOT, "data": {"text/plain": ["'/home/me'"]}}, "print(1): shows /home/me"),
        (
            {**PLOT, "data": {"image/png": "A" * 2 * IMAGE}},
            f"print(1): a plot of more than {IMAGE} bytes",
        ),
    ],
)
def test_outputs_that_are_none_to_show(tmp_path: Path, output: dict[str, Any], fault: str) -> None:
    assert faults(executed(tmp_path, output)) == [fault]


def test_a_cell_that_was_not_executed(tmp_path: Path) -> None:
    assert faults(executed(tmp_path, count=None)) == ["print(1): was not executed"]


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = executed(tmp_path, {**STREAM, "text": ["x" * FILE]})
    assert faults(path) == [f"the file has {path.stat().st_size} bytes, more than {FILE}"]
