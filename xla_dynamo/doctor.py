"""`python -m xla_dynamo doctor`: what is installed, and whether both ways in work, by trying them.

Each way in runs a program in a process of its own, since a bad installation can end the process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from . import versions

# What is tried, in this order, and the function here that does it.
_TRIED = {"device": "find_devices", "torch.compile": "try_compile", "xla tensors": "try_tensors"}
_EXCEPTION = re.compile(r"(\w+\.)*[A-Z]\w+: ")  # how the last part of a traceback begins
_VARIABLES = ("XLA_", "PJRT_", "JAX_", "TORCH_LOGS", "TORCHDYNAMO_", "LIBTPU_", "CPU_NUM_DEVICES")
_PATIENCE = 300  # seconds; a TPU takes up to a minute to start


@dataclass(frozen=True)
class Row:
    """A line of the report, and what is wrong there."""

    name: str
    text: str
    problem: str = ""


def main(cache: str, as_json: bool = False) -> int:
    """Print the report, with `cache` as what is to say of the cache; 0 if both ways in work."""
    rows = []
    for row in _examine(cache):
        rows.append(row)
        if not as_json:
            print(f"{row.name:<14} {row.text}", flush=True)
    problems = [row.problem for row in rows if row.problem]
    if as_json:
        report = {row.name: row.text for row in rows}
        print(json.dumps({"works": not problems, "problems": problems, "report": report}, indent=1))
    elif problems:
        print(f"\nThis installation does not work. {problems[0]}")
    else:
        print("\nThis installation works.")
    return 1 if problems else 0


def _examine(cache: str) -> Iterator[Row]:
    """What is installed, then each way in, until one does not work."""
    notes = {finding.package: finding for finding in versions.findings()}
    for package in dict.fromkeys(("xla_dynamo", *versions.TESTED, "libtpu", "numpy", *notes)):
        note = notes.get(package)
        problem = f"{package} is {note.text}" if note is not None and note.is_error else ""
        yield Row(package, _with_note(package, note), problem)
    yield Row("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Row("plug-ins", ", ".join(_plugins()) or "none: XLA runs on the CPU")
    yield Row("variables", ", ".join(_variables()) or "none")
    yield Row("cache", cache)
    for way, function in _TRIED.items():
        works, told = _try(function)
        yield Row(way, told, "" if works else f"{way}: {told}")
        if not works:
            break  # what comes after fails of the same


def _variables() -> list[str]:
    """The environment variables that count, as they are set."""
    names = sorted(name for name in os.environ if name.startswith(_VARIABLES))
    return [f"{name}={os.environ[name]}" for name in names]


def find_devices() -> str:
    """The default platform's devices, with the versions behind them."""
    from .backend.runtime import pjrt
    from .backend.runtime.platforms import default_platform

    device = pjrt.device(default_platform())
    return "; ".join(f"{one.id}: {pjrt.describe(one)}" for one in device.client.local_devices())


def try_compile() -> str:
    """Train a layer under torch.compile, and compare with eager.

    Raises:
        AssertionError: other numbers.
    """
    import torch

    import xla_dynamo

    layer, x = torch.nn.Linear(8, 4), torch.ones(3, 8)
    compiled = torch.compile(lambda x: layer(x).relu().sum(), backend="xla", fullgraph=True)
    losses = [loss(x).item() for loss in (lambda x: layer(x).relu().sum(), compiled)]
    compiled(x).backward()
    assert abs(losses[0] - losses[1]) < 1e-3, f"{losses[1]} instead of {losses[0]}"
    assert layer.weight.grad is not None
    return _told(xla_dynamo.counters(), "a training step is compiled and runs")


def try_tensors() -> str:
    """The same on tensors of the device `xla`, as a script for torch_xla has them.

    Raises:
        AssertionError: other numbers.
    """
    import torch

    import xla_dynamo.compat

    xm = importlib.import_module("torch_xla.core.xla_model")
    layer, x = torch.nn.Linear(8, 4), torch.ones(3, 8)
    want = layer(x).relu().sum().item()
    layer.to(xm.xla_device())
    loss = layer(x.to(xm.xla_device())).relu().sum()
    loss.backward()
    xm.mark_step()
    assert abs(loss.item() - want) < 1e-3, f"{loss.item()} instead of {want}"
    return _told(xla_dynamo.counters(), "a training step is recorded, compiled and runs")


def _told(counters: dict[str, int], success: str) -> str:
    fallbacks = [name for name in counters if name.startswith("fallback")]
    assert not fallbacks, f"ran on the CPU: {', '.join(fallbacks)}"
    return success


def _try(function: str) -> tuple[bool, str]:
    """Run a function of this module in a fresh process: whether it returns, and its last line."""
    program = f"from xla_dynamo import doctor; print(doctor.{function}())"
    environment = os.environ | {"XLA_DYNAMO_STRICT": "1", "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_PATIENCE} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode == 0:
        return True, lines[-1]
    return False, _reason(lines) or f"the process died (exit code {done.returncode})"


def _reason(lines: list[str]) -> str:
    """Of what a process wrote last: the first line of the last exception."""
    errors = [line for line in lines if _EXCEPTION.match(line)]
    return (errors or lines or [""])[-1]


def _with_note(package: str, finding: versions.Finding | None) -> str:
    version = versions.installed(package) or "not installed"
    return version if finding is None else f"{version}   {finding.text}"


def _plugins() -> list[str]:
    """PJRT plug-ins: what announces itself to JAX, and libtpu, which JAX knows by name."""
    announced = importlib.metadata.entry_points(group="jax_plugins")
    names = {point.dist.name for point in announced if point.dist}
    if versions.installed("libtpu"):
        names.add("libtpu")
    return [f"{name} {versions.installed(name)}" for name in sorted(names)]
