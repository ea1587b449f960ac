"""SPMD over several devices of a process: what is computed, where it lies, what is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import run

ROOT = Path(__file__).parents[4]
PROGRAMS = str(Path(__file__).with_name("spmd_programs.py"))


def program(name: str, *arguments: str, devices: int = 4) -> str:
    return run(PROGRAMS, name, *arguments, CPU_NUM_DEVICES=str(devices))


def test_training_over_data_and_model() -> None:
    """Two programs: the first step makes the optimizer's state. No parameter is whole anywhere."""
    assert program("trains_as_on_one_device").splitlines() == [
        "2 programs for 5 steps",
        "whole parameters: []",
        "arguments that results replace: 69",
        "collectives: ['all-gather', 'all-reduce']",
        "torch.Size([64, 16]) {devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}",
        "True",
    ]


@pytest.mark.slow
def test_training_over_eight_devices() -> None:
    assert program("trains_as_on_one_device", devices=8).startswith("2 programs for 5 steps\n")


def test_fully_sharded_training() -> None:
    """Each parameter is split over all devices, also what 4 does not divide."""
    printed = program("fsdp_trains_as_on_one_device")
    assert "2 programs; 0 parameters are whole" in printed
    assert "collectives: ['all-gather', 'all-reduce'" in printed


@pytest.mark.slow
def test_devices_of_two_processes() -> None:
    """One program over all; where processes record different ones, both end, and say so."""
    arguments = ["--nproc-per-node=2", "--standalone", PROGRAMS, "in_processes"]
    printed = run(
        "-m", "torch.distributed.run", *arguments, fails=True, fresh=True, CPU_NUM_DEVICES="2"
    )
    assert printed.count("right so far") == 2
    assert printed.count("parts of this tensor are on devices of other processes") == 2
    assert "ReplicaError" in printed
    assert "processes launch different programs" in printed


def test_marks() -> None:
    printed = program("marks")
    assert "Existing annotation must be cleared first" in printed
    assert "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate} True" in printed
    assert "Number of device IDs (2) must match the global number of devices (4)" in printed
    assert "an input is split over the devices in another way" in printed
    rows = "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"
    assert f"['{{devices=[2,2]0,1,2,3}}', '{{devices=[2,2]0,1,2,3}}', '{rows}']" in printed


def test_a_checkpoint_is_loaded_on_other_devices(tmp_path: Path) -> None:
    """No tensor that is split is brought together, when it is saved or loaded."""
    assert program("saves", str(tmp_path)).splitlines() == ["[True, False, True, False]", "[2, 4]"]
    assert program("loads", str(tmp_path), devices=2).startswith("16 tensors; {devices=[2,1]0,1}")


@pytest.mark.slow
def test_random_programs_on_inputs_that_are_split_at_random() -> None:
    module = "tests.compat.torch_xla.distributed.spmd_programs"
    printed = run("-m", module, "fuzz", "40", cwd=ROOT, CPU_NUM_DEVICES="4")
    assert "lazy: Tally(graphs=40" in printed


def test_loaders_and_compiled_functions() -> None:
    rows = "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"
    printed = program("loads_and_compiles")
    assert str([(rows, 0.0), (rows, 12.0), (rows, 24.0)]) in printed
    assert "[[0, 0], [1, 1], [2, 2]]" in printed
    columns = "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}"
    assert f"{[2 * 4] * 3} {columns}" in printed  # two parameters, their moments and steps
