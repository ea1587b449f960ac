"""`python -m xla_dynamo check` as a user calls it, on scripts of each generation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from xla_dynamo import __main__

LEGACY = Path(__file__).parents[1] / "legacy"
SCRIPT = """import torch_xla.core.xla_model as xm
import torch_xla.core.functions as xf
device = xm.xla_device()
other = xm.xla_device(n=2)
xf.nms(other, 1)
xf.nms(other, 2)
"""


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = __main__.main(["check", *map(str, arguments)])
    return code, capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict]:
    code, printed = check(capsys, "--json", *arguments)
    return code, json.loads(printed)


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    code, printed = check(capsys, script)
    assert code == 1
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines[0] == str(script)
    assert "4 differs xm.xla_device" in lines
    assert "5 not available torch_xla.core.functions.nms (also 6)" in lines
    assert "-> use torchvision.ops.nms" in lines
    assert lines[-1] == "1 file: 3 of torch_xla's names work; 1 x differs, 1 x not available."


def test_text_without_rich(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with_rich = check(capsys, tmp_path)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert check(capsys, tmp_path) == with_rich


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    code, told = as_json(capsys, tmp_path)
    assert (code, told["complete"]) == (1, False)
    assert told["counts"] == {
        **{"works": 3, "differs": 1, "no effect": 0, "not available": 1, "note": 0}
    }
    (file,) = told["files"]
    assert file["works"]["torch_xla.core.xla_model.xla_device"] == [3]
    assert [(f["line"], f["also"], f["state"]) for f in file["findings"]] == [
        (4, [], "differs"),
        (5, [6], "not available"),
    ]


@pytest.mark.parametrize("folder", ["scripts", "seed_002", "seed_003", "seed_004"])
def test_scripts_that_run_here_are_complete(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """2019's torch_xla_py, Kaggle's scripts of 2020, libraries' loops, and 2.9."""
    files = [path for path in (LEGACY / folder).glob("*.py") if path.name != "clip_grad_norm.py"]
    code, told = as_json(capsys, *files)
    assert (code, told["complete"]) == (0, True)
    assert told["counts"]["works"] > 2
    assert told["counts"]["not available"] == 0


def test_what_differs_in_a_script_of_2020(capsys: pytest.CaptureFixture[str]) -> None:
    _, told = as_json(capsys, LEGACY / "scripts" / "kaggle_mnist.py")
    found = {(f["name"], f["state"]) for f in told["files"][0]["findings"]}
    assert found == {
        ("XLA_TENSOR_ALLOCATOR_MAXSIZE", "no effect"),
        (".item()", "note"),
        ("xmp.spawn", "differs"),
    }


def test_files_without_torch_xla_are_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.synchronize()\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "b.py").write_text("no python\n")
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "env" / "c.py").write_text("no python\n")
    assert check(capsys, tmp_path) == (0, "No name of torch_xla in 1 file.\n")


def test_what_cannot_be_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.py").write_text("import torch_xla\nprint 'python 2'\n")
    (tmp_path / "not.ipynb").write_text("{}")
    code, printed = check(capsys, tmp_path, tmp_path / "absent.py")
    assert code == 1
    assert "it is not Python: " in printed
    assert "(line 2)" in printed
    assert "not a notebook" in printed
    assert "3 files: 0 of torch_xla's names work; 3 files not read." in printed
    assert "No such file" in printed


def test_notebooks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# not code"]},
        {"cell_type": "code", "source": ["!pip install x\n", "%matplotlib inline\n", "import os"]},
        {"cell_type": "code", "source": ["%%bash\n", "not python"]},
        {"cell_type": "code", "source": ["import torch_xla.core.functions as xf\n", "xf.nms(1)"]},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    code, told = as_json(capsys, tmp_path)
    assert code == 1
    assert told["files"][0]["findings"][0]["place"] == "cell 3, line 2"
