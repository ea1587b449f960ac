"""Notebooks become scripts, which run with all their ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.notebooks.__main__ import path_of, run
from tests.notebooks.script import script_of

CELLS = [
    "import os\nassert os.environ['COLAB_TPU_ADDR']",
    "!pip install torch_xla\n  %time pass",
    "FLAGS = {}\nFLAGS['num_epochs'] = 10\nFLAGS['batch_size'] = 128\n",
    "from torchvision import datasets\n"
    "import torch_xla.core.xla_model as xm\n"
    "import torch_xla.distributed.xla_multiprocessing as xmp\n"
    "def train(rank, flags):\n"
    "  data = datasets.MNIST('/tmp', train=True, download=True)\n"
    "  image, label = data[rank]\n"
    "  total = xm.all_reduce('sum', image.to(xm.xla_device()))\n"
    "  print(f'[xla:{rank}] Loss={total.mean().item():.3f}', flush=True)\n"
    "xmp.spawn(train, args=(FLAGS,), nprocs=8, start_method='fork')",
]


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in CELLS]
    path = tmp_path / "note.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["# a"]}, *code]}))
    return path


def test_cells_become_one_script(notebook: Path) -> None:
    text = script_of(notebook, {"num_epochs": 1, "batch_size": 16}, 4)
    compile(text, "note", "exec")
    assert "FLAGS['num_epochs'] = 1\n" in text
    assert "FLAGS['batch_size'] = 16\n" in text
    assert "nprocs=4, start_method='fork'" in text
    assert "pip" not in text


@pytest.mark.slow
def test_all_ranks_of_a_notebook_run(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(notebook, ranks=8, batch=2, steps=1) == 0
    told = re.findall(r"\[(xla:\d)\].*?=([-\d.e]+)", capsys.readouterr().out)
    assert sorted(device for device, _ in told) == [f"xla:{i}" for i in range(8)]
    assert len({loss for _, loss in told}) == 1


def test_notebooks_whose_names_have_the_version_of_their_runtime(tmp_path: Path) -> None:
    for name in ("mnist-training-xrt-1-15", "getting-started"):
        (tmp_path / f"{name}.ipynb").touch()
    found = [path_of(name, tmp_path).name for name in ("mnist-training", "getting-started")]
    assert found == ["mnist-training-xrt-1-15.ipynb", "getting-started.ipynb"]
