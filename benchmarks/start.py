"""What it takes to begin: a process with a tiny model, and a first step with programs on disk.

`python -m benchmarks.start`; each row is a fresh process, and the disk cache a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cpu import SCRIPT

PROBLEMS = ("mnist", "resnet18", "gpt")
# Engines -> their names in the table.
WAYS = {
    "xla": "`torch.compile`",
    "xla saved": "saved by `aot_compile`",
    "xla lazy": "`xla:0`",
    "aot_eager": "PyTorch's part of the first",
}
_PROCESS = """
import os
{code}
times = os.times()
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1e3
print(times.user + times.system, peak)
"""
_MODEL = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
{compiled}
model(torch.randn(2, 8)).sum().backward()
"""
_JAX = """
import jax, jax.numpy as jnp
loss = lambda w, x: (jnp.maximum(x @ w[0], 0) @ w[1]).sum()
weights = [jnp.ones((8, 8)), jnp.ones((8, 1))]
jax.block_until_ready(jax.jit(jax.grad(loss))(weights, jnp.ones((2, 8))))
"""
_TORCH_XLA = """
import torch, torch_xla.core.xla_model as xm
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model.to(xm.xla_device())
model(torch.randn(2, 8, device=xm.xla_device())).sum().backward()
xm.mark_step()
xm.wait_device_ops()
"""


def _compiled(backend: str) -> str:
    return _MODEL.format(compiled=f'model = torch.compile(model, backend="{backend}")')


def process(python: str, code: str, cache: str) -> tuple[float, float]:
    """CPU seconds of a fresh process that runs `code`, and its peak of memory in MB."""
    command = [python, "-W", "ignore", "-c", _PROCESS.format(code=code)]
    run = subprocess.run(
        command, env=_environment(cache), capture_output=True, text=True, check=True
    )
    seconds, peak = run.stdout.split()[-2:]
    return float(seconds), float(peak)


def _environment(cache: str) -> dict[str, str]:
    ours = {"XLA_DYNAMO_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU"}
    ours["TORCHINDUCTOR_CACHE_DIR"] = str(Path(cache, "torch"))  # AOTAutograd's lies there
    # Else each process compiles the sources of all that it imports, as pip has done for users.
    bytecode = {"PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **ours, **bytecode}


def tiny(torch_xla: str | None = None) -> dict[str, tuple[float, float]]:
    """CPU seconds and peak MB of processes that differentiate a tiny model, by what runs it."""
    here = sys.executable
    with tempfile.TemporaryDirectory() as cache:
        found = {
            "eager PyTorch": process(here, _MODEL.format(compiled=""), cache),
            'torch.compile(backend="aot_eager")': process(here, _compiled("aot_eager"), cache),
            "JAX": process(here, _JAX, cache),
            "this backend, nothing on disk": process(here, _compiled("xla"), cache),
            "this backend, its programs on disk": process(here, _compiled("xla"), cache),
        }
    if torch_xla:
        found["torch_xla"] = process(torch_xla, _TORCH_XLA, "0")
    return found


def first_steps(problems: Sequence[str] = PROBLEMS) -> dict[tuple[str, str], tuple[float, float]]:
    """By model and way in: seconds to the end of the first training step, and of a second process.

    Building the model and importing what compiles it count.
    """
    found = {}
    for problem in problems:
        for way in WAYS:
            with tempfile.TemporaryDirectory() as cache:
                found[problem, way] = (
                    _first_step(problem, way, cache),
                    _first_step(problem, way, cache),
                )
    return found


def _first_step(problem: str, way: str, cache: str) -> float:
    command = [sys.executable, str(SCRIPT), "start", way, problem]
    run = subprocess.run(
        command, env=_environment(cache), input="", capture_output=True, text=True, check=True
    )
    return float(json.loads(run.stdout.splitlines()[-1])["first_step_seconds"])


def tiny_table(found: Mapping[str, tuple[float, float]]) -> str:
    """Markdown."""
    lines = ["| a process with a tiny model | CPU s | peak memory, MB |", "|---|--:|--:|"]
    lines += [f"| {name} | {seconds:.1f} | {peak:.0f} |" for name, (seconds, peak) in found.items()]
    return "\n".join(lines)


def first_table(found: Mapping[tuple[str, str], tuple[float, float]]) -> str:
    """Markdown."""
    lines = ["| model | way in | first process, s | second, s | ratio |", "|---|---|--:|--:|--:|"]
    for (problem, way), (cold, warm) in found.items():
        lines.append(f"| {problem} | {WAYS[way]} | {cold:.1f} | {warm:.1f} | {warm / cold:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-xla", metavar="PYTHON")
    print(tiny_table(tiny(parser.parse_args().torch_xla)))
    print(first_table(first_steps()))
