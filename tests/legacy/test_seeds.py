"""Snippets of documents about torch_xla (2019 to 2020), run as scripts.

A script is headers (what the document takes for granted), snippets as they are printed, and a
footer that compares with PyTorch on the CPU. Two of the documents print the same code, one of
them translated: it runs once, and a second time under `make test ARGS="-m slow"`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.programs import run

HERE = Path(__file__).parent
TRANSLATED, DOCUMENTATION = "seed_001", "seed_004"
BOTH = [pytest.param(TRANSLATED, marks=pytest.mark.slow), DOCUMENTATION]


def test_the_translated_document_prints_the_same_code() -> None:
    snippets = sorted(path.name for path in (HERE / DOCUMENTATION).glob("*.py"))
    assert sorted(path.name for path in (HERE / TRANSLATED).glob("*.py")) == snippets
    for name in snippets:
        one, other = (
            ast.parse((HERE / seed / name).read_text()) for seed in (TRANSLATED, DOCUMENTATION)
        )
        assert ast.dump(one) == ast.dump(other), name


def script(tmp_path: Path, *parts: str, fails: bool = False, **environment: str) -> str:
    """What the script made of these files prints."""
    text = "".join((HERE / f"{part}.py").read_text() + "\n" for part in parts)
    path = tmp_path / "script.py"
    path.write_text(text)
    return run("-m", "xla_dynamo", "run", str(path), fails=fails, cwd=tmp_path, **environment)


TENSOR = r"tensor\(\[.*?\]\s*, device='xla:0'\)"


@pytest.mark.parametrize("seed", BOTH)
def test_create(tmp_path: Path, seed: str) -> None:
    printed = script(tmp_path, f"{seed}/create")
    assert re.fullmatch(rf"xla:0\n{TENSOR}\n", printed, re.DOTALL), printed


@pytest.mark.parametrize("seed", BOTH)
def test_add_and_multiply(tmp_path: Path, seed: str) -> None:
    add = (f"{seed}/create", f"{seed}/add", "footers/add")
    printed = script(tmp_path, *add, f"{seed}/multiply", "footers/multiply")
    assert re.fullmatch(rf"xla:0\n({TENSOR}\n){{3}}", printed, re.DOTALL), printed


@pytest.mark.parametrize("seed", BOTH)
def test_module(tmp_path: Path, seed: str) -> None:
    printed = script(tmp_path, "headers/tensors", f"{seed}/module", "footers/module")
    assert re.fullmatch(r"tensor\(\[.*\], device='xla:0',\s+grad_fn=.*\)\n", printed, re.DOTALL)


@pytest.mark.parametrize("seed", BOTH)
def test_tensors_of_another_device_are_refused(tmp_path: Path, seed: str) -> None:
    printed = script(tmp_path, "headers/tensors", f"{seed}/other_device", fails=True)
    assert "Input tensor is not an XLA tensor: torch.FloatTensor" in printed
    assert "l_out = linear(l_in)" in printed


@pytest.mark.parametrize("seed", BOTH)
def test_save_and_load(tmp_path: Path, seed: str) -> None:
    assert script(tmp_path, f"{seed}/save_and_load", "footers/save_and_load") == ""
    assert (tmp_path / "tensors.pt").exists()


def trained(printed: str) -> tuple[list[str], dict[str, float]]:
    """Devices, and the numbers that footers/trained.py prints."""
    devices = re.search(r"^devices (.*)$", printed, re.M)
    loss = re.search(r"^loss (\S+) -> (\S+)$", printed, re.M)
    assert devices, printed
    assert loss, printed
    found = dict(re.findall(r"^(difference|replicas differ by) (\S+)$", printed, re.M))
    numbers = {name: float(value) for name, value in found.items()}
    return devices[1].split(), numbers | {"before": float(loss[1]), "after": float(loss[2])}


@pytest.mark.parametrize("snippet", ["single_device", "multiprocessing", "multithreading"])
@pytest.mark.parametrize("seed", BOTH)
def test_training(tmp_path: Path, seed: str, snippet: str) -> None:
    devices, numbers = trained(
        script(tmp_path, "headers/mnist", f"{seed}/{snippet}", "footers/trained")
    )
    assert devices == ["xla:0"]
    assert numbers["difference"] < 1e-5
    assert numbers["after"] < numbers["before"] - 0.05


@pytest.mark.parametrize("snippet", [f"{DOCUMENTATION}/multithreading", "seed_002/data_parallel"])
def test_replicas_in_threads_train_one_model(tmp_path: Path, snippet: str) -> None:
    parts = ("headers/mnist", snippet, "footers/trained")
    devices, numbers = trained(script(tmp_path, *parts, CPU_NUM_DEVICES="2"))
    assert devices == ["xla:0", "xla:1"]
    assert numbers["replicas differ by"] == 0
    assert numbers["after"] < numbers["before"] - 0.05


def test_the_package_of_2019(tmp_path: Path) -> None:
    printed = script(tmp_path, "seed_002/create", "seed_002/metrics")
    assert re.match(rf"xla:0\n{TENSOR}\n", printed, re.DOTALL), printed
    assert re.search(r"^Metric: CompileTime\n  TotalSamples: \d+\n", printed, re.M), printed
    devices, numbers = trained(
        script(tmp_path, "headers/mnist", "seed_002/data_parallel", "footers/trained")
    )
    assert devices == ["xla:0"]
    assert numbers["difference"] < 1e-5


def test_clipping_without_item(tmp_path: Path) -> None:
    printed = script(
        tmp_path, "headers/clip_grad_norm", "seed_002/clip_grad_norm", "footers/clip_grad_norm"
    )
    norms = [float(norm) for norm in re.findall(r"norm (\S+)", printed)]
    assert norms == pytest.approx([10**0.5, 10**0.5, 10 ** (1 / 3)])


def test_notebook(tmp_path: Path) -> None:
    printed = script(tmp_path, "seed_003/notebook", "footers/notebook")
    assert len(re.findall(r"device='xla:\d'", printed)) == 8, printed
    assert "[0., 0., 0.]" in printed
    assert "features.grad on xla:0" in printed


def test_several_devices(tmp_path: Path) -> None:
    printed = script(tmp_path, "seed_003/notebook", "footers/notebook", CPU_NUM_DEVICES="2")
    assert "device='xla:1'" in printed


def test_tutorial_network(tmp_path: Path) -> None:
    printed = script(tmp_path, "headers/tutorial_network", "footers/tutorial_network")
    assert "device='xla:0'" in printed


def test_what_the_library_did_in_2019(tmp_path: Path) -> None:
    printed = script(
        tmp_path, "headers/tensors", "seed_000/create", "seed_000/xla_device",
        "footers/xla_device", "seed_000/network", "footers/network",
    )  # fmt: skip
    lines = printed.splitlines()
    assert lines[0] == "['xla:0'] ['xla:0'] xla:0 xla:0"
    assert lines[1] == "tensor([2., 2.], device='xla:0')"
    assert "grad_fn" in lines[2]
