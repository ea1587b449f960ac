"""Shardings as tables of devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_xla.distributed.spmd as xs
from torch_xla.distributed.spmd import debugging

XLA = torch.device("xla:0")


@pytest.mark.parametrize(
    ("sharding", "rows"),
    [
        ("{replicated}", ["CPU [0]"]),
        ("{devices=[2,2]0,1,2,3}", ["CPU 0 │ CPU 1", "CPU 2 │ CPU 3"]),
        ("{devices=[1,2]1,0}", ["CPU 1 │ CPU 0"]),
        ("{devices=[2]0,1}", ["CPU 0", "CPU 1"]),
        ("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", ["CPU [0, 1]", "CPU [2, 3]"]),
        ("{devices=[1,2,2]0,1,2,3}", ["CPU 0 │ CPU 2"]),  # of three dimensions, the first two
    ],
)
def test_the_table_has_a_cell_a_part(sharding: str, rows: list[str], capsys: Any) -> None:
    debugging.visualize_sharding(sharding, use_color=False)
    printed = [" ".join(line.split()).strip("│ ") for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == f"Visualizing {sharding} (showing up to the first two dimensions)"
    assert [line for line in printed[1:] if "CPU" in line] == rows


def test_a_tensor_that_is_marked(capsys: Any) -> None:
    t = torch.ones(2, 2, device=XLA)
    xs.mark_sharding(t, xs.get_1d_mesh("x"), ("x", None))
    debugging.visualize_tensor_sharding(t)
    out = capsys.readouterr().out
    assert "Visualizing {replicated}" in out
    assert "CPU [0]" in out


def test_another_text_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="not organized as expected"):
        debugging.visualize_sharding("{manual}")
    monkeypatch.setattr(debugging, "Console", None)
    with pytest.raises(ValueError, match="requires `rich`"):
        debugging.visualize_sharding("{replicated}")
