"""Whole programs in the style of public repositories of 2019 to 2025, run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import run

SCRIPTS = Path(__file__).parent / "scripts"


def results(tmp_path: Path, name: str, *arguments: str, cores: int = 8) -> tuple[list[str], str]:
    """The words of the line that a script prints last, and all that it prints.

    cores: how many replicas it starts, where that is 8.
    """
    script = tmp_path / name
    text = (SCRIPTS / name).read_text()
    script.write_text(re.sub(r"(num_cores\"\] = |nprocs=)8\b", rf"\g<1>{cores}", text))
    printed = run("-m", "xla_dynamo", "run", str(script), *arguments, cwd=tmp_path)
    found = re.search(r"^RESULT (.*)$", printed, re.M)
    assert found, printed
    assert "FallbackWarning" not in printed
    return found[1].split(), printed


EIGHT = pytest.param(8, marks=pytest.mark.slow)


@pytest.mark.parametrize("cores", [2, EIGHT])
def test_kaggle_mnist(tmp_path: Path, cores: int) -> None:
    (accuracy, *devices), printed = results(tmp_path, "kaggle_mnist.py", cores=cores)
    assert float(accuracy) > 120 / cores  # of as many steps less
    assert devices == ["['cpu']"]
    assert re.search(r"^\[xla:0\]\(0\) Loss=\d\.\d{5} Rate=\d", printed, re.M)
    assert re.search(r"^\| Test Device=xla:0/0 Epoch=2 Accuracy=\d\d\.\d\d Time=", printed, re.M)
    assert "Metric: CompileTime" in printed


@pytest.mark.parametrize("cores", [1, EIGHT])
def test_resnet_cifar(tmp_path: Path, cores: int) -> None:
    _, printed = results(tmp_path, "resnet_cifar.py", "--num_cores", str(cores))
    words = re.findall(r"RESULT (\d+) compiles; restored: (\w+)", printed)
    assert len(words) == cores
    # The first step, the second with the optimizer's state, those that log, evaluation.
    assert all(int(compiles) <= 4 for compiles, _ in words)
    assert "True" in {same for _, same in words}  # batch norm's statistics are each replica's own
    lines = re.findall(r"^\| Training Device=xla:0/0 Epoch=\d Step=\d Loss=(\S+)", printed, re.M)
    assert len(lines) == 4
    assert float(lines[-1]) < float(lines[0])


@pytest.mark.parametrize("cores", [1, EIGHT])
def test_bert(tmp_path: Path, cores: int) -> None:
    _, printed = results(tmp_path, "bert_finetune.py", cores=cores)
    lines = re.findall(r"RESULT (\S+) (\S+) (\S+)", printed)
    assert len(lines) == cores
    assert len({(first, last) for first, last, _ in lines}) == 1  # losses are reduced
    # Each replica evaluates its own share, 8 samples of 8 replicas: one has 5 of them right.
    assert sum(float(accuracy) for *_, accuracy in lines) / cores > 0.8


def test_clipping_and_accumulation(tmp_path: Path) -> None:
    (first, last), printed = results(tmp_path, "tacotron.py")
    assert float(last) < float(first) / 2
    # Steps with and without the second clipping.
    assert "Counter: UncachedCompile\n  Value: 2\n" in printed


def test_gan(tmp_path: Path) -> None:
    (first, last, compiles), printed = results(tmp_path, "gan.py")
    assert float(last) < float(first)
    assert int(compiles) <= 4
    assert len(re.findall(r"^Loss_D: \S+ Loss_G: \S+ D\(x\): \S+$", printed, re.M)) == 4
    assert "pictures (4, 1, 16, 16) cpu" in printed


def test_what_accelerate_calls(tmp_path: Path) -> None:
    (first, last, *rest), printed = results(tmp_path, "accelerate_like.py")
    assert "batches 5 16" in printed
    assert float(last) < float(first) / 2
    assert rest == ["['cpu']", "['torch.float32']"]


def test_fairseq(tmp_path: Path) -> None:
    (first, last, compiles), printed = results(tmp_path, "fairseq_like.py")
    assert float(last) < float(first) / 2
    assert int(compiles) <= 6  # two lengths of sentences; a loss is read at some steps
    assert "counters True" in printed


def test_step_sync_compile_launch(tmp_path: Path) -> None:
    (first, last, accuracy), printed = results(tmp_path, "step_2x.py")
    assert float(last) < float(first) / 2
    assert float(accuracy) > 0.8
    assert "devices [device(type='xla', index=0)] 1 CPU" in printed
