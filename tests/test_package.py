"""What holds of the package as a whole: a clean import, the entry point, the wheel."""

from __future__ import annotations

import ast
import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import xla_dynamo

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "xla_dynamo"

# Everything that a careless import or a first compile might change for the rest of the process.
STATE = """
import logging, os, sys, threading, warnings
import torch, torch._dynamo, torch._functorch.config, torch._inductor.config

def state():
    return {
        "dynamo": torch._dynamo.config.save_config_portable(),
        "functorch": torch._functorch.config.save_config_portable(),
        "inductor": torch._inductor.config.save_config_portable(),
        "backends": torch._dynamo.list_backends(exclude_tags=()),
        "accelerator": torch.accelerator.current_accelerator(),
        "privateuse1": torch._C._get_privateuse1_backend_name(),
        "dtype": torch.get_default_dtype(),
        "precision": torch.get_float32_matmul_precision(),
        "threads": (torch.get_num_threads(), threading.active_count()),
        "environment": dict(os.environ),
        "warnings": list(warnings.filters),
        "handlers": list(logging.getLogger().handlers),
        "hooks": (sys.excepthook, list(sys.meta_path), sys.displayhook),
    }
"""


def python(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_import_loads_no_compiler_and_changes_nothing(tmp_path):
    done = python(
        STATE
        + """
before = state()
import xla_dynamo
after = state()
assert before == after, {k: (before[k], after[k]) for k in before if before[k] != after[k]}
loaded = {"jax", "jaxlib", "torch_mlir"} & sys.modules.keys()
assert not loaded, loaded
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_the_names_of_torch_xla_load_no_compiler(tmp_path):
    done = python(
        """
import sys
import torch
import xla_dynamo.compat
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader
import torch_xla.debug.metrics
heavy = {"jax", "jaxlib", "torch_mlir", "torch._dynamo", "torch._inductor", "sympy"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
assert (torch.ones(2, device="xla") + 1).tolist() == [2.0, 2.0]
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_entry_point_needs_no_import_and_compiling_changes_nothing_of_pytorchs(tmp_path):
    done = python(
        STATE
        + """
before = state()
assert "xla_dynamo" not in sys.modules
model = torch.nn.Linear(3, 4)
compiled = torch.compile(model, backend="xla")
x = torch.randn(2, 3)
torch.testing.assert_close(compiled(x), model(x))
assert sys.modules["xla_dynamo"].compiles()
after = state()
# XLA's own worker threads and jaxlib's variables are not PyTorch's.
for ours in ("threads", "environment"):
    del before[ours], after[ours]
assert before == after, {k: (before[k], after[k]) for k in before if before[k] != after[k]}
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_version_is_that_of_the_installation(monkeypatch):
    assert xla_dynamo.__version__ == importlib.metadata.version("xla_dynamo")
    monkeypatch.setattr(xla_dynamo.versions, "installed", lambda package: None)
    assert xla_dynamo.__version__ == "0+unknown"  # a checkout on PYTHONPATH


def test_version_is_the_last_tag(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def told(*commands: str) -> str:
        for command in commands:
            subprocess.run(
                ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command.split()],
                cwd=tmp_path,
                check=True,
                capture_output=True,
            )
        done = subprocess.run(
            [sys.executable, "-m", "setuptools_scm"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert told() == "0.1.0.dev0"
    assert told("init", "add .", "commit -m one", "tag v0.2.0") == "0.2.0"
    assert told("commit --allow-empty -m two").startswith("0.2.1.dev1+g")


def test_wheel_holds_the_package_and_nothing_else(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("xla_dynamo", "tests", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    wheel = zipfile.ZipFile(path)
    files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = source / "xla_dynamo"
    table = package / "backend" / "lowering" / "proved_tpu.json"
    data = (package / "py.typed", table, *(package / "reporting" / "files").iterdir())
    assert files == {str(p.relative_to(source)) for p in (*package.rglob("*.py"), *data)}
    (entry_points,) = (n for n in wheel.namelist() if n.endswith("dist-info/entry_points.txt"))
    for name in ("xla", "torchxla_trace_once", "aot_torchxla_trace_once"):
        assert f"\n{name} = xla_dynamo.backend:xla" in wheel.read(entry_points).decode()
    assert any(name.endswith("/LICENSE") for name in wheel.namelist())


def test_every_name_of_the_public_api_is_explicit():
    """`from .x import y as y`: type checkers take nothing else for public in a typed package."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    aliases = [a for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    assert [a.name for a in aliases if a.asname != a.name and a.name != "annotations"] == []


@pytest.mark.parametrize("name", ["xla", "torchxla_trace_once", "aot_torchxla_trace_once"])
def test_dynamo_finds_the_backend_by_each_of_its_names(name):
    """The long ones are torch_xla's of 2022: Accelerate knows them, and no other one for XLA."""
    from torch._dynamo.backends.registry import lookup_backend

    assert name in torch._dynamo.list_backends()
    assert lookup_backend(name) is xla_dynamo.xla
    before = len(xla_dynamo.compiles())
    compiled = torch.compile(lambda x: x * 2 + 1, backend=name)
    assert compiled(torch.ones(3)).tolist() == [3.0] * 3
    assert len(xla_dynamo.compiles()) == before + 1
