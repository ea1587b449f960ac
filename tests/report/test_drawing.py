"""Where things are drawn."""

from __future__ import annotations

import pytest

from tests.report import runs
from xla_dynamo.reporting import drawing
from xla_dynamo.reporting.model import Op

pytestmark = pytest.mark.spine


@pytest.mark.parametrize(
    ("end", "texts"),
    [
        (10.0, ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]),
        (0.004, ["0 s", "500 µs", "1 ms", "1.5 ms", "2 ms", "2.5 ms", "3 ms", "3.5 ms", "4 ms"]),
        (3600.0, ["0 s", "8 min 20 s", *[f"{m} min {s} s" for m, s in ((16, 40), (25, 0))]]),
    ],
)
def test_ticks_are_at_round_times(end: float, texts: list[str]) -> None:
    found = drawing.ticks(end)
    assert [tick.text for tick in found][: len(texts)] == texts
    assert all(0 <= tick.left <= 100 for tick in found)


def test_ops_are_below_what_they_take() -> None:
    drawn = drawing.graph(runs.OPS)
    assert drawn is not None
    y = {box.op.name: box.y for box in drawn.boxes}
    assert y["x"] == y["t"] < y["mm"] < y["relu"]
    assert len(drawn.edges) == 3
    assert len({(box.x, box.y) for box in drawn.boxes}) == 4


def test_an_argument_is_right_above_its_first_use() -> None:
    chain = [Op("a", "argument", "", (), "", "", "")]
    chain += [Op(f"n{i}", "sin", "", (i,), "", "", "") for i in range(3)]
    chain += [Op("b", "argument", "", (), "", "", ""), Op("sum", "add", "", (3, 4), "", "", "")]
    drawn = drawing.graph(chain)
    assert drawn is not None
    y = {box.op.name: box.y for box in drawn.boxes}
    assert y["b"] == y["n2"]


def test_large_graphs_are_lists_alone() -> None:
    assert drawing.graph(runs.OPS * 20) is None
    assert drawing.graph(()) is None


def test_a_list_is_by_module_and_line() -> None:
    first, second = drawing.listing(runs.OPS)
    assert (first.module, first.location) == ("layer (Linear)", "train.py:7")
    assert first.lines == (("mm = mm(x, t)", "float32[8, 4]"),)
    assert second.lines == (("relu = relu(mm)", "float32[8, 4]"),)
