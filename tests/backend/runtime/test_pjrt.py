"""Devices, arrays and executables of PJRT, on the CPU's client."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
import torch

from tests.programs import run
from xla_dynamo import bookkeeping
from xla_dynamo.backend.runtime import pjrt, transfers
from xla_dynamo.config import config
from xla_dynamo.errors import CompileError, DeviceUnavailable, InstallationError

pytestmark = pytest.mark.spine
F32 = np.dtype("float32")
SIGNATURE = [((3,), F32)]


@pytest.fixture
def device() -> pjrt.Device:
    return pjrt.device("cpu")


def module(function: Any, *inputs: np.ndarray) -> Any:
    return jax.jit(function).lower(*inputs).compiler_ir("stablehlo")


def doubled(x: Any) -> Any:
    return x + x


def test_devices_that_do_not_exist(device: pjrt.Device) -> None:
    assert pjrt.device("cpu") is device
    count = pjrt.device_count("cpu")
    with pytest.raises(DeviceUnavailable, match=f"cpu:{count} does not exist: {count} device"):
        pjrt.device("cpu", count)
    with pytest.raises(DeviceUnavailable, match=r"'nowhere' cannot be initialised.*Install its"):
        pjrt.device("nowhere")


def test_descriptions_name_platform_and_versions(device: pjrt.Device) -> None:
    text = pjrt.describe(device)
    assert text.startswith("cpu/")
    assert text.endswith(jax.__version__)


def test_an_executable_runs_and_tells_what_it_is(device: pjrt.Device) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    executable = pjrt.compile(module(doubled, np.ones(3, F32)), device, SIGNATURE, SIGNATURE, {})
    for _ in range(2):  # the second call is in C++
        (array,) = executable(transfers.to_array(x, device))
        assert transfers.download(array).tolist() == [2.0, 4.0, 6.0]
    assert "HloModule" in executable.optimized_hlo()
    assert executable.memory().argument_size_in_bytes == 12
    assert executable.cost()["flops"] == 3.0


def test_an_executable_survives_the_disk(
    device: pjrt.Device, capfd: pytest.CaptureFixture[str]
) -> None:
    program = module(doubled, np.ones(3, F32))
    data = pjrt.compile(program, device, SIGNATURE, SIGNATURE, {}).serialize()
    loaded = pjrt.deserialize(data, device, SIGNATURE, SIGNATURE, {})
    (array,) = loaded(transfers.to_array(torch.ones(3), device))
    assert transfers.download(array).tolist() == [2.0, 2.0, 2.0]
    assert capfd.readouterr().err == ""  # XLA's logging of machine code for other machines


def test_a_program_that_xla_refuses(device: pjrt.Device) -> None:
    program = module(doubled, np.ones(3, F32))
    with pytest.raises(CompileError, match=r"XLA refused the program: .*xla_no_such"):
        pjrt.compile(program, device, SIGNATURE, SIGNATURE, {"xla_no_such": True})


def test_hlo_of_a_module_before_xla_has_seen_it() -> None:
    text = pjrt.hlo_text(module(doubled, np.ones(3, F32)))
    assert "HloModule" in text
    assert "f32[3]" in text


def test_a_jaxlib_that_takes_no_programs_of_ours_is_named(
    device: pjrt.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(module: object) -> None:
        raise TypeError("incompatible function arguments")

    monkeypatch.setattr(pjrt, "computation", refuse)
    module = jax.jit(lambda x: x).lower(1.0).compiler_ir("stablehlo")
    with pytest.raises(InstallationError, match=r"incompatible.*`python -m xla_dynamo doctor`"):
        pjrt.compile(module, device, [], [], {})


def test_a_compiler_option_of_a_wrong_type_is_no_fault_of_the_installation(
    device: pjrt.Device,
) -> None:
    module = jax.jit(lambda x: x).lower(1.0).compiler_ir("stablehlo")
    with pytest.raises(CompileError, match="incompatible function arguments"):
        pjrt.compile(module, device, [], [], {"xla_cpu_enable_fast_math": object()})


FORKS = """
import os, warnings
from jax._src import xla_bridge
from xla_dynamo.backend.runtime import pjrt, transfers

filters = list(warnings.filters)
{first}
if os.fork() == 0:
    os._exit(0)
os.wait()
assert warnings.filters == filters
print(xla_bridge._at_fork_handler_installed, xla_bridge.backends_are_initialized())
"""


@pytest.mark.parametrize(
    ("first", "warns"), [("pjrt.client_of_jax('cpu')", False), ("xla_bridge.backends()", True)]
)
def test_forks_bring_no_warning_unless_the_program_uses_jax_itself(first: str, warns: bool) -> None:
    printed = run("-c", FORKS.format(first=first))
    assert ("os.fork() was called" in printed) == warns
    assert printed.splitlines()[-1] == f"{warns} True"


def test_launches_are_told_of_while_somebody_observes(
    device: pjrt.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[pjrt.Executable, int, int]] = []
    monkeypatch.setattr(bookkeeping, "config", lambda: replace(config(), strict=False))

    def launched(*of: Any) -> None:
        told.append(of)
        raise KeyError("who observes")  # no program fails of that

    executable = pjrt.compile(module(doubled, np.ones(3, F32)), device, SIGNATURE, SIGNATURE, {})
    x = transfers.to_array(torch.ones(3), device)
    executable(x)
    try:
        pjrt.observe(launched)
        before = time.perf_counter_ns()
        (array,) = executable(x)
        after = time.perf_counter_ns()
    finally:
        pjrt.observe(None)
    executable(x)
    assert transfers.download(array).tolist() == [2.0] * 3
    ((which, start, end),) = told
    assert which is executable
    assert before < start < end < after
    assert pjrt.ends_in_call(executable)
    assert pjrt.own_devices(executable) == [device]
