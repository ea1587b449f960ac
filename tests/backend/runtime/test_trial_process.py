"""A process compiles for a TPU's topology and dies of it, or does not."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from jax.extend.mlir import ir

from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.lowering import linker
from xla_dynamo.backend.runtime import topology, trial_process
from xla_dynamo.backend.runtime.trial_process import Verdict, compile_apart

FATAL = """
func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %y = stablehlo.complex %x, %x : tensor<4xcomplex<f64>>
  %z = stablehlo.abs %y : (tensor<4xcomplex<f64>>) -> tensor<4xf64>
  return %z : tensor<4xf64>
}
"""
REFUSED = """
func.func public @main(%x: tensor<4x4xi64>) -> tensor<4x4xi64> {
  %y = stablehlo.dot %x, %x : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi64>
  return %y : tensor<4x4xi64>
}
"""


def program(text: str) -> bytes:
    with jax_adapter.new_context():
        return linker.bytecode(ir.Module.parse(text))


@pytest.mark.tpu
def test_a_compiler_that_ends_its_process() -> None:
    death = compile_apart(program(FATAL), "v5e:2x2", {})
    assert death is not None
    assert death.signal == "SIGABRT"
    assert "xprecision_rewriter.cc" in death.words
    assert "stack trace" not in death.words


@pytest.mark.tpu
def test_a_compiler_that_raises_is_no_death() -> None:
    assert compile_apart(program(REFUSED), "v5e:2x2", {}) == Verdict()


@pytest.mark.tpu
@pytest.mark.parametrize("name", sorted(set(trial_process._TOPOLOGIES.values())))
def test_kinds_of_devices(name: str) -> None:
    device = topology.topology_device(name)
    assert trial_process.topology_of(device) == name


ENDS = {
    -signal.SIGABRT: Verdict("SIGABRT", "F0101 one\nCheck failed"),
    -signal.SIGSEGV: Verdict("SIGSEGV", "F0101 one\nCheck failed"),
    -signal.SIGKILL: None,  # out of the host's memory, say
    -signal.SIGINT: None,
    1: None,  # it could not begin
    0: Verdict(),
}


ERRORS = b"F0101 one\nCheck failed\n\n*** Check failure stack trace: ***\n   @ f()\n"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the last process but that for nothing was given."""
    given: dict[str, Any] = {"code": 0, "code of nothing": 0}

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
        if how["input"].endswith(trial_process._NOTHING):
            return subprocess.CompletedProcess(command, given["code of nothing"], b"", ERRORS)
        given.update(how)
        return subprocess.CompletedProcess(command, given["code"], b"", ERRORS)

    monkeypatch.setattr(subprocess, "run", run)
    trial_process._survives_nothing.cache_clear()
    yield given
    trial_process._survives_nothing.cache_clear()


@pytest.mark.parametrize("code", ENDS)
def test_what_is_a_death_of_the_compilers(
    code: int, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "0")
    given["code"] = code
    assert compile_apart(b"program", "v5e:2x2", {"xla_x": True}) == ENDS[code]
    assert given["input"] == b'{"topology": "v5e:2x2", "overrides": {"xla_x": true}}\nprogram'
    assert "TPU_VISIBLE_CHIPS" not in given["env"]


def test_where_nothing_compiles_no_program_is_to_blame(given: dict[str, Any]) -> None:
    """As where libtpu does not load beside the process that holds the TPU."""
    given["code"] = given["code of nothing"] = -signal.SIGABRT
    assert compile_apart(b"program", "v5e:2x2", {}) is None


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "_PATIENCE", 0.01)
    assert compile_apart(program(REFUSED), "v5e:2x2", {}) is None


def test_no_process_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert compile_apart(b"program", "v5e:2x2", {}) is None
