"""Runs notebooks for Colab's TPUs of 2020 as they are, with eight ranks on the CPU.

    git clone --branch v1.5.0 https://github.com/pytorch/xla ~/xla-1.5
    python -m tests.notebooks ~/xla-1.5/contrib/colab

Stand-ins take the place of torchvision (random images that can be learned), matplotlib and Colab's
own modules. Batches are small, and epochs one, so that all four take some minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .script import script_of

NAMES = (
    "getting-started",
    "mnist-training",
    "resnet18-training",
    "multi-core-alexnet-fashion-mnist",
)
_ROOT = Path(__file__).parents[2]
_STAND_INS = Path(__file__).parent / "stand_ins"
_TOLD = re.compile(r"Loss=|Accuracy=|% accuracy|finished training")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="a notebook, or the folder of the four")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16, help="of a rank")
    parser.add_argument("--steps", type=int, default=4, help="of an epoch")
    options = parser.parse_args()
    one = options.path.suffix == ".ipynb"
    paths = [options.path] if one else [path_of(name, options.path) for name in NAMES]
    failed = [path for path in paths if run(path, options.ranks, options.batch, options.steps)]
    return len(failed)


def path_of(name: str, folder: Path) -> Path:
    """The notebook of that name, or with "-xrt-1-15" behind it, as v1.5.0 has some."""
    return next(folder.glob(f"{name}*.ipynb"), folder / f"{name}.ipynb")


def run(notebook: Path, ranks: int, batch: int, steps: int) -> int:
    """The exit code of a notebook; prints what its ranks say of their losses."""
    flags = {"num_epochs": 1, "num_workers": 0, "log_steps": 1}
    flags |= {"batch_size": batch, "num_cores": ranks}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / f"{notebook.stem}.py"
        script.write_text(script_of(notebook, flags, ranks))
        path = os.pathsep.join([str(_STAND_INS), str(_ROOT), os.environ.get("PYTHONPATH", "")])
        given = {
            "PYTHONPATH": path,
            "COLAB_TPU_ADDR": "10.0.0.2:8470",
            "CPU_NUM_DEVICES": str(ranks),
            "STAND_IN_ROWS": str(ranks * batch * steps),
        }
        done = subprocess.run(
            [sys.executable, "-m", "xla_dynamo", "run", str(script)],
            cwd=folder,
            env=os.environ | given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    told = [line for line in done.stdout.splitlines() if _TOLD.search(line)]
    ended = "ended" if done.returncode == 0 else f"FAILED\n{done.stdout}"
    print(f"{notebook.stem}: {ended} after {time.monotonic() - start:.0f} s", flush=True)
    print("\n".join(f"  {line}" for line in told[-2 * ranks :]), flush=True)
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
