"""Variables, other devices and loops around torch_xla's names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xla_dynamo.check import loops, surroundings
from xla_dynamo.check.scan import scan

PACKAGE = Path(surroundings.__file__).parents[1]
IMPORTS = "import os, torch, torch_xla.core.xla_model as xm, torch_xla.core.xla_env_vars as xenv\n"


@pytest.mark.parametrize(
    "text",
    [
        'os.environ["XRT_TPU_CONFIG"] = "tpu_worker;0;1.2.3.4:8470"',
        'os.environ.setdefault("XRT_TPU_CONFIG", "x")',
        'os.environ.get("XRT_TPU_CONFIG")',
        "os.environ[xenv.TPU_CONFIG] = '1'",
    ],
)
def test_variables(text: str) -> None:
    (found,) = surroundings.variables(scan(IMPORTS + text))
    assert (found.line, found.name) == (2, "XRT_TPU_CONFIG")
    assert "PJRT_DEVICE" in found.verdict.remedy


def test_variables_that_count_are_not_told_of() -> None:
    text = IMPORTS + 'os.environ["XLA_USE_BF16"] = "1"\nos.environ[f"XRT_{x}"] = y'
    assert not [*surroundings.variables(scan(text))]


def test_nothing_reads_the_variables_of_the_table() -> None:
    sources = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    for name in surroundings.VARIABLES:
        readers = [p.name for p, text in sources.items() if re.search(rf"\b{name}\b", text)]
        assert not {*readers} - {"surroundings.py", "xla_env_vars.py"}, name


def test_the_address_of_colab_is_a_key_error_elsewhere() -> None:
    text = IMPORTS + 'a = os.environ["COLAB_TPU_ADDR"]\nb = os.environ.get("COLAB_TPU_ADDR")'
    (found,) = surroundings.variables(scan(text))
    assert (found.line, "KeyError" in found.verdict.why) == (2, True)


def test_other_devices() -> None:
    text = IMPORTS + (
        "torch.cuda.synchronize()\nx.cuda()\n"
        "if torch.cuda.is_available():\n  torch.cuda.reset_peak_memory_stats()\n  x.cuda()\n"
        "if use_cuda: x.cuda()\n"
    )
    found = [(f.line, f.name, f.verdict.remedy) for f in surroundings.other_devices(scan(text))]
    assert sorted(found) == [
        (2, "torch.cuda.synchronize", "xm.wait_device_ops() waits"),
        (3, ".cuda()", ".to(device)"),
    ]


LOOP = """
device = xm.xla_device()
for x, y in {over}:
    loss = f(x)
    loss.backward()
    {line}
"""


@pytest.mark.parametrize(
    ("over", "line", "waits"),
    [
        ("loader", "total += loss.item()", True),
        ("enumerate(self.train_loader)", "total += loss.item()", True),
        ("pl.MpDeviceLoader(loader, device)", "print(loss.item())", True),
        ("loader", "if i % 100 == 0: print(loss.item())", False),
        ("loader", "xm.add_step_closure(lambda: print(loss.item()))", False),
        ("range(3)", "total += loss.item()", False),
        ("settings.items()", "total += loss.item()", False),
    ],
)
def test_waiting_in_each_pass(over: str, line: str, waits: bool) -> None:
    found = [*loops.waits(scan(IMPORTS + LOOP.format(over=over, line=line)))]
    assert bool(found) is waits
    assert not found or found[0].line == 7


@pytest.mark.parametrize(
    ("over", "line", "told"),
    [
        ("batches", "xm.optimizer_step(optimizer)", True),
        ("batches", "optimizer.step()", True),
        ("batches", "xm.optimizer_step(optimizer, barrier=True)", False),
        ("batches", "xm.mark_step()", False),
        ("batches", "xm.torch_xla.sync(); print(loss)", False),
        ("batches", "print(loss)", False),
        ("pl.MpDeviceLoader(batches, device)", "optimizer.step()", False),
    ],
)
def test_steps_that_nothing_ends(over: str, line: str, told: bool) -> None:
    text = "import torch_xla.distributed.parallel_loader as pl\n"
    found = [*loops.without_barrier(scan(IMPORTS + text + LOOP.format(over=over, line=line)))]
    assert [finding.line for finding in found] == [5] * told


def test_a_module_without_a_device_is_not_told_of_barriers() -> None:
    text = IMPORTS + "for x in batches:\n  f(x).backward()"
    assert not [*loops.without_barrier(scan(text))]
