"""Where `make bench` writes its tables: docs/benchmarks.md, and a short one into README.md."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as bench
from benchmarks import operator_page

ROOT = Path(__file__).parents[1]


def test_summary_has_a_row_for_each_model():
    rows = [
        {"problem": "gpt", "engine": "xla", "step_milliseconds": 12.34},
        {"problem": "gpt", "engine": "jax", "error": "..."},
        {"problem": "mnist", "engine": "xla", "step_milliseconds": 5.0},
        {"problem": "mnist", "engine": "jax", "step_milliseconds": 6.06},
    ]
    ratios = {"flops": 0.987, "bytes_accessed": 1.0}
    models = [SimpleNamespace(problem=name, ratio=ratios.get) for name in ("gpt", "mnist")]
    assert bench.summary(rows, models).splitlines() == [
        "| model | `torch.compile`, ms | JAX, ms | TPU FLOPs / JAX's | TPU bytes / JAX's |",
        "|---|--:|--:|--:|--:|",
        "| gpt | 12.3 | failed | 0.99 | 1.00 |",
        "| mnist | 5.0 | 6.1 | 0.99 | 1.00 |",
    ]


@pytest.mark.parametrize("page", [bench.PAGE, bench.README])
def test_pages_have_the_markers(page, tmp_path):
    copy = tmp_path / page.name
    copy.write_text((ROOT / page).read_text())
    bench.replace_section(copy, "\nnew\n\n")
    before, rest = copy.read_text().split("<!-- benchmarks -->\n")
    assert rest.startswith("\nnew\n\n<!-- /benchmarks -->\n")
    assert (ROOT / page).read_text().startswith(before)


def test_page_is_what_would_be_written():
    """The words around the tables are those of the next run."""
    text = (ROOT / bench.PAGE).read_text()
    for part in bench.TEXT.split("\n\n"):
        assert part.startswith("{") or part.strip() in text


def test_single_operators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    operator_page.SUMMARY.write_text((ROOT / operator_page.SUMMARY).read_text())
    operator_page.publish([operator_page.Result("scans", "cumsum", "forward", 1.0, 2.0)], 2)
    assert "| scans | 1 | 0.50 | 0.50 | cumsum, forward |" in operator_page.SUMMARY.read_text()
    assert "| cumsum | forward | 1.00 | 2.00 | 0.50 |" in operator_page.PAGE.read_text()
