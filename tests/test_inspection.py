"""What users can look at: the stages of a compile, logs, dumps, and the cache on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import xla_dynamo
from tests import programs
from xla_dynamo.config import config

PROGRAM = """
import torch
import xla_dynamo

def step(x, y):
    return torch.cumsum(x @ y, 0).tanh()

compiled = torch.compile(step, backend="xla")
result = compiled(torch.ones(3, 4), torch.ones(4, 5))
assert torch.allclose(result, step(torch.ones(3, 4), torch.ones(4, 5)))
(record,) = xla_dynamo.compiles()
print("from disk:", record.from_disk)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "user_program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def run(program: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python process of its own."""
    return subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.cumsum(x @ y, 0).tanh()


def test_capture_has_all_stages_with_the_users_line() -> None:
    with xla_dynamo.capture() as stages:
        torch.compile(product, backend="xla")(torch.randn(3, 4), torch.randn(4, 5))
    (stage,) = stages
    assert stage.graph == "0/0 inference"
    assert "torch.ops.aten.mm.default" in stage.fx or "aten.mm.default" in stage.fx
    line = product.__code__.co_firstlineno + 1
    assert "torch.aten.mm" in stage.torch_dialect
    assert "stablehlo.dot_general" in stage.stablehlo
    assert "HloModule" in stage.hlo
    for text in (stage.torch_dialect, stage.stablehlo):
        assert f'"{__file__}":{line}' in text
    assert f'"{__file__}"' in stage.hlo
    assert f"line={line}" in stage.hlo
    for text in (stage.torch_dialect, stage.stablehlo, stage.hlo):
        assert "aten.mm.default" in text
        assert "aten.cumsum.default" in text


def test_random_ops_go_by_their_name() -> None:
    with xla_dynamo.capture() as stages:
        torch.compile(torch.rand_like, backend="xla")(torch.randn(3))
    (stage,) = stages
    for text in (stage.torch_dialect, stage.stablehlo, stage.hlo):
        assert "aten.rand" in text
        assert "function call at 0x" not in text


def test_capture_of_forward_and_backward() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with xla_dynamo.capture() as stages:
        torch.compile(product, backend="xla")(x, torch.randn(4, 5)).sum().backward()
    assert [stage.graph for stage in stages] == ["0/0 forward", "0/0 backward"]
    with xla_dynamo.capture() as nothing_new:
        torch.compile(product, backend="xla")(x, torch.randn(4, 5)).sum().backward()
    assert nothing_new == []


def test_dump_writes_every_stage(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    run(program, XLA_DYNAMO_DUMP=str(folder))
    contents = {path.name.partition(".")[2]: path.read_text() for path in folder.iterdir()}
    assert contents.keys() == {"fx.py", "torch.mlir", "stablehlo.mlir", "hlo.txt"}
    assert "aten.mm" in contents["fx.py"]
    assert "torch.aten.mm" in contents["torch.mlir"]
    assert "stablehlo.dot_general" in contents["stablehlo.mlir"]
    assert "HloModule" in contents["hlo.txt"]
    assert str(program) in contents["stablehlo.mlir"]


def test_torch_logs_shows_stages(program: Path) -> None:
    """torch refuses names in TORCH_LOGS that are no modules: all stages are one setting."""
    shown = run(program, TORCH_LOGS="+xla_dynamo").stderr
    for text in ("torch.aten.mm", "stablehlo.dot_general", "HloModule"):
        assert text in shown


def test_torch_logs_shows_compiles(program: Path) -> None:
    shown = run(program, TORCH_LOGS="xla_dynamo").stderr
    assert f"first op at {program}:6" in shown
    assert "stablehlo" not in shown
    assert "first op" not in run(program).stderr


def test_second_process_loads_from_disk(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    environment = {"XLA_DYNAMO_CACHE_DIR": str(folder)}
    assert "from disk: False" in programs.run(str(program), **environment)
    assert "from disk: True" in programs.run(str(program), **environment)
    # The same program from another file and line is the same executable.
    moved = tmp_path / "moved.py"
    moved.write_text("\n\n" + program.read_text())
    assert "from disk: True" in programs.run(str(moved), **environment)


def test_a_program_from_disk_needs_no_torch_mlir(program: Path, tmp_path: Path) -> None:
    program.write_text(f"{program.read_text()}\nimport sys\nprint('torch_mlir' in sys.modules)\n")
    environment = {"XLA_DYNAMO_CACHE_DIR": str(tmp_path / "cache")}
    assert programs.run(str(program), fresh=True, **environment).endswith("True\n")
    assert programs.run(str(program), fresh=True, **environment).endswith("False\n")


@pytest.mark.slow
def test_of_two_processes_one_compiles(tmp_path: Path) -> None:
    """They meet at a file, lower, and want the same executable; it takes a second to compile."""
    script = tmp_path / "both.py"
    script.write_text(TWO)
    environment = {**os.environ, "XLA_DYNAMO_CACHE_DIR": str(tmp_path / "cache")}
    both = [
        subprocess.Popen(
            [sys.executable, script, str(tmp_path), str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = sorted(process.communicate(timeout=300)[0].strip() for process in both)
    assert printed == ["from disk: False", "from disk: True"]


TWO = """
import pathlib, sys, time
import torch, xla_dynamo
from xla_dynamo.backend.runtime import pjrt

folder, rank = pathlib.Path(sys.argv[1]), int(sys.argv[2])
torch.compile(lambda x: x + 1, backend="xla", options={"disk_cache": False})(torch.ones(3))
(folder / f"ready-{rank}").touch()
while not all((folder / f"ready-{other}").exists() for other in range(2)):
    time.sleep(0.01)
compile = pjrt.compile
pjrt.compile = lambda *args: (time.sleep(5), compile(*args))[1]
torch.compile(lambda x: x.sin() @ x.cos(), backend="xla")(torch.ones(64, 64))
print("from disk:", xla_dynamo.compiles()[-1].from_disk)
"""


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of this process's own; tests may change its settings."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XLA_DYNAMO_CACHE_DIR", str(folder))
    config.cache_clear()
    yield folder
    monkeypatch.undo()
    config.cache_clear()


def compiles_from_disk(size: int = 3) -> bool:
    """Compile a small function as if for the first time; whether it came from disk."""
    torch.compiler.reset()
    x = torch.randn(size)
    torch.testing.assert_close(torch.compile(torch.sin, backend="xla", dynamic=False)(x), x.sin())
    return xla_dynamo.compiles()[-1].from_disk


def executable_in(folder: Path) -> Path:
    """The one executable in a cache; what leads to it without lowering is smaller."""
    executable, _ = sorted(folder.iterdir(), key=lambda path: -path.stat().st_size)
    return executable


def lowered() -> int:
    """How many graphs were lowered since the last call."""
    runs = xla_dynamo.passes()["unflatten_matmul"].runs
    xla_dynamo.reset_metrics()
    return runs


def test_what_is_on_disk_is_not_lowered_again(cache_folder: Path) -> None:
    assert not compiles_from_disk()
    assert lowered() == 1
    assert compiles_from_disk()
    assert "unflatten_matmul" not in xla_dynamo.passes()


def test_without_what_leads_to_it_an_executable_is_found_by_its_stablehlo(
    cache_folder: Path,
) -> None:
    compiles_from_disk()
    executable = executable_in(cache_folder)
    [leads] = [path for path in cache_folder.iterdir() if path != executable]
    leads.write_bytes(leads.read_bytes()[:-3])
    lowered()
    assert compiles_from_disk()
    assert lowered() == 1


def test_jax_functions_of_one_name_are_told_apart(cache_folder: Path) -> None:
    x = torch.ones(3)
    for factor in (2.0, 3.0):
        torch.compiler.reset()
        scale = xla_dynamo.jax_function(lambda x, by=factor: x * by)
        assert torch.compile(lambda x, f=scale: f(x), backend="xla")(x).tolist() == [factor] * 3


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_damaged_cache_is_ignored_and_mended(cache_folder: Path, damage: str) -> None:
    compiles_from_disk()
    entry = executable_in(cache_folder)
    content = bytearray(entry.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    keep = {"truncated": len(content) // 2, "flipped": len(content), "empty": 0}[damage]
    entry.write_bytes(content[:keep])
    assert not compiles_from_disk()
    assert compiles_from_disk()


def test_cache_that_cannot_be_written_is_no_error(cache_folder: Path) -> None:
    cache_folder.write_text("not a folder")
    assert [compiles_from_disk() for _ in range(2)] == [False, False]


def test_cache_turned_off(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_DYNAMO_CACHE_DIR", "0")
    assert [compiles_from_disk() for _ in range(2)] == [False, False]
    assert not cache_folder.exists()


def test_full_cache_drops_the_least_recently_used(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles_from_disk(3)
    limit = int(2.5 * executable_in(cache_folder).stat().st_size)
    monkeypatch.setenv("XLA_DYNAMO_CACHE_BYTES", str(limit))
    config.cache_clear()
    assert [compiles_from_disk(size) for size in (4, 5, 5, 4)] == [False, False, True, True]
    assert sum(path.stat().st_size for path in cache_folder.iterdir()) <= limit
    assert not compiles_from_disk(3)  # for which 5 goes
    assert [compiles_from_disk(size) for size in (4, 5)] == [True, False]


def test_records_and_counters_are_copies() -> None:
    torch.compile(torch.sin, backend="xla")(torch.randn(3))
    xla_dynamo.compiles().clear()
    xla_dynamo.counters()["x"] = 1
    assert len(xla_dynamo.compiles()) == 1
    assert "x" not in xla_dynamo.counters()
    xla_dynamo.reset_metrics()
    assert xla_dynamo.compiles() == []
