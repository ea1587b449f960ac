"""`xr.use_spmd(auto=True)`: what no mark splits is split, with the results of one device."""

from __future__ import annotations

from pathlib import Path

from tests.programs import run

PROGRAMS = str(Path(__file__).with_name("auto_sharding_programs.py"))
ROWS, COLUMNS = "{devices=[4,1]0,1,2,3}", "{devices=[1,4]0,1,2,3}"


def test_training() -> None:
    """Each device computes with its part of the batch; a large parameter is gathered for it."""
    assert run(PROGRAMS, "trains", CPU_NUM_DEVICES="4").splitlines() == [
        "2 programs, 2 of them split",
        "whole batches: 0",
        "collectives: ['all-gather', 'all-reduce']",
        str([ROWS, *["{replicated}"] * 5, ROWS]),
    ]


def test_other_ways() -> None:
    """distribute_module, a mark of one's own, a batch that does not divide, and a mesh."""
    printed = run(PROGRAMS, "other_ways", CPU_NUM_DEVICES="4")
    assert str([ROWS] * 3) in printed
    assert "UserWarning: an input of shape (6, 256) is whole on every device" in printed
    two = "[2,1,2]0,1,2,3", "[2,1,2]0,2,1,3"
    assert str([f"{{devices={each} last_tile_dim_replicate}}" for each in two])[:-1] in printed
    assert "XLA_AUTO_SPMD_MESH is '3', which is no mesh of 4 devices" in printed
