"""The examples, run as a newcomer runs them, at small sizes; docs/examples.md tells of each.

Those that need other libraries are in tests/ecosystem.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.notebooks.outputs import faults
from tests.notebooks.script import script_of
from tests.programs import run

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
STAND_INS = ROOT / "tests" / "notebooks" / "stand_ins"
OF_LIBRARIES = {"hf_trainer", "accelerate_loop", "lightning_fit", "diffusers_sample"} | {
    "torchvision_resnet"
}


def example(tmp_path: Path, name: str, *arguments: str, **environment: str) -> str:
    """What `python examples/NAME.py ARGUMENTS` prints."""
    return run(str(EXAMPLES / f"{name}.py"), *arguments, cwd=tmp_path, **environment)


def legacy(tmp_path: Path, name: str, *arguments: str, **environment: str) -> str:
    """What `python -m xla_dynamo run examples/NAME.py ARGUMENTS` prints."""
    script = str(EXAMPLES / f"{name}.py")
    return run("-m", "xla_dynamo", "run", script, *arguments, cwd=tmp_path, **environment)


def report(printed: str) -> dict[str, str]:
    """The lines "name  value" of an example."""
    return dict(re.findall(r"^(\S.*?)  +(.*)$", printed, re.MULTILINE))


def test_digits_learns_on_xla_alone(tmp_path):
    told = report(example(tmp_path, "digits", "--epochs", "4"))
    assert float(told["held-out accuracy"].split("%")[0]) > 97
    assert told["not on XLA"] == "nothing"
    # Forward, backward, the optimizer, and the model in eval mode: one shape each.
    assert told["compiled"].startswith("4 programs")
    assert told["device"].startswith("cpu/")


def test_the_accelerator_check_trains_right_on_a_cpu(tmp_path):
    printed = example(tmp_path, "tpu_check", "--models", "LSTM", "dropped", "--steps", "1")
    assert len(re.findall(r" right ", printed)) == 4
    assert "ops that ran on the CPU: 0" in printed


@pytest.mark.slow
def test_the_accelerator_check_trains_right_in_several_processes(tmp_path):
    printed = example(tmp_path, "tpu_check", "--spawn", "2", "--steps", "1", "--models", "LSTM")
    assert re.search(r"LSTM +2 by xmp.spawn .* right ", printed)


@pytest.mark.slow
def test_gpt_compiles_a_step_once(tmp_path):
    small = ("--steps", "20", "--letters", "3", "--batch-size", "4", "--layers", "1")
    told = report(example(tmp_path, "gpt", *small))
    first, last = map(float, re.findall(r"\d\.\d\d", told["loss"]))
    assert last < first - 0.5
    # The optimizer's first step, which makes its state, is a program of its own.
    assert told["programs"] == "5, for 20 steps"


def test_generate_has_one_program_for_all_letters(tmp_path):
    told = report(example(tmp_path, "generate", "--steps", "2", "--letters", "8"))
    assert told["programs"] == "1, for 8 letters"


def test_lengths_share_programs(tmp_path):
    told = report(example(tmp_path, "lengths", "--steps", "4"))
    assert int(told["lengths"].split(",")[0]) == 4
    assert int(told["programs"].split(",")[0]) == 4  # forward and backward, of 2 buckets


def test_a_script_of_2019(tmp_path):
    printed = legacy(tmp_path, "legacy_2019", "--epochs", "2", CPU_NUM_DEVICES="2")
    accuracies = re.findall(r"^epoch \d, 2 device\(s\): ([\d.]+)% right$", printed, re.MULTILINE)
    assert float(accuracies[1]) > 60


def test_a_script_of_2_9(tmp_path):
    told = report(legacy(tmp_path, "legacy_2_9", "--steps", "60"))
    assert told["device"] == "xla:0: CPU"
    # The steps, and what is computed at last.
    assert told["programs"] == "2, for 60 steps"
    assert float(told["right"].split("%")[0]) > 80


def test_processes_with_a_replica_each(tmp_path):
    printed = legacy(tmp_path, "spawn", "--epochs", "2")
    accuracies = re.findall(r"^epoch \d, 2 replicas: ([\d.]+)% right$", printed, re.MULTILINE)
    assert float(accuracies[1]) > 80


@pytest.mark.slow
def test_ddp_under_torchrun(tmp_path):
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    script = str(EXAMPLES / "data_parallel.py")
    environment = {"XLA_DYNAMO_COMPAT": "1"}
    printed = run(*start, script, "--epochs", "2", cwd=tmp_path, fresh=True, **environment)
    assert "all have the same weights: True" in printed
    assert re.search(r"^epoch 2, 2 processes: [89]\d\.\d\d% right$", printed, re.MULTILINE)


def test_one_program_over_devices(tmp_path):
    told = report(legacy(tmp_path, "spmd_fsdp", "--steps", "20"))
    assert told["devices"] == "4"
    assert told["largest weight"] == "(256, 256), on each (64, 256)"
    first, last = map(float, re.findall(r"\d\.\d+", told["loss"]))
    assert last < first / 2


def test_a_jax_function_learns(tmp_path):
    told = report(example(tmp_path, "jax_op", "--steps", "120"))
    assert told["programs"] == "2"
    assert 0.88 < float(told["decay"].split(",")[0]) < 0.92


def test_an_exported_program_gives_the_same(tmp_path):
    printed = legacy(tmp_path, "export", "--folder", "out")
    assert float(printed.split()[-1]) < 1e-5
    assert list((tmp_path / "out").rglob("*.mlir"))


def test_the_cost_on_a_tpu(tmp_path):
    arguments = ("--batches", "1", "--dtypes", "bfloat16", "--width", "64", "--layers", "1")
    printed = example(tmp_path, "tpu_cost", *arguments)
    assert re.search(r"bfloat16 +│ 1 +│ 0.0\d", printed)


def test_a_timeline_has_the_steps(tmp_path):
    told = report(example(tmp_path, "profile_steps", "--steps", "3", "--folder", "timeline"))
    assert told["backward"].startswith("3 times, median ")
    assert told["launches"] == "xla 0/0 backward, xla 0/0 forward, xla 2/0 inference"
    assert told["programs"] == "3"
    assert (tmp_path / told["timeline"]).exists()


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    """Its cells, without a kernel and without plots; `make notebook` has both."""
    cells = script_of(EXAMPLES / "start_here.ipynb", {}, 1)
    script = tmp_path / "start_here.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(STAND_INS)!r})\n{cells}")
    printed = run(str(script), cwd=tmp_path)
    assert "xla_dynamo is installed: nothing to do" in printed
    assert "dimension 0 changed from 300 to 250" in printed
    assert float(re.findall(r"^epoch 3 accuracy (\S+)$", printed, re.MULTILINE)[0]) > 0.9
    assert "3 programs, for 176 steps and 4 tests" in printed
    assert re.search(r"^batch 256 .* k cycles$", printed, re.MULTILINE)
    assert "open in https://ui.perfetto.dev" in printed


def test_the_notebook_has_the_outputs_of_its_cells():
    assert faults(EXAMPLES / "start_here.ipynb") == []


def test_each_example_has_its_test_and_its_paragraph():
    paths = {path for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    tested = Path(__file__).read_text()
    alone = {path for path in paths if path.stem not in OF_LIBRARIES}
    assert {path for path in alone if f'"{path.stem}' not in tested} == set()
    page = (ROOT / "docs" / "examples.md").read_text()
    assert {path for path in paths if f"(../examples/{path.name})" not in page} == set()
