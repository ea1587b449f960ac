"""Blocks in which each device computes with its shard, against the same on whole tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import run

PROGRAMS = str(Path(__file__).with_name("manual_sharding_programs.py"))


@pytest.mark.parametrize("name", ["computes", "collectives", "crosses", "gradients", "refuses"])
def test_manual_sharding(name: str) -> None:
    assert run(PROGRAMS, name, CPU_NUM_DEVICES="4").splitlines()[-1] == "right"
