"""torch_xla.debug.profiler on jax.profiler."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp

import xla_dynamo

XLA = torch.device("xla:0")


@pytest.fixture(autouse=True)
def no_step() -> Iterator[None]:
    yield
    xp.set_tracer_marked_step(False)


def test_regions_without_a_server_do_not_touch_the_profiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xp.Trace, "_annotation", None)  # calling it would fail
    monkeypatch.setattr(xp.StepTrace, "_annotation", None)
    x = torch.ones(3)
    with xp.Trace("forward", rows=3):
        y = x * 2
    torch.testing.assert_close(y, torch.full((3,), 2.0))


def test_a_step_region_ends_with_a_barrier() -> None:
    xm.mark_step()
    met.clear_all()
    with xp.StepTrace("step", step_num=1):
        y = torch.ones(3).to(XLA) * 2
        assert xm.get_stablehlo([y]) != ""
    assert met.counter_value("MarkStep") == 1
    assert xm.get_stablehlo([y]) == ""
    assert xp.get_tracer_marked_step()


def test_a_step_region_ends_with_a_barrier_when_it_raises() -> None:
    xm.mark_step()
    met.clear_all()
    y = torch.ones(3).to(XLA)
    with pytest.raises(ZeroDivisionError), xp.StepTrace("step"):
        raise ZeroDivisionError
    assert met.counter_value("MarkStep") == 1
    assert y.shape == (3,)


def test_the_decorator_keeps_the_function() -> None:
    @xp.trace_me("double")
    def double(x: torch.Tensor) -> torch.Tensor:
        """Twice."""
        return x * 2

    assert double.__doc__ == "Twice."
    torch.testing.assert_close(double(torch.ones(2).to(XLA)).cpu(), torch.full((2,), 2.0))


def test_a_trace_is_written(tmp_path: Path) -> None:
    with xp.profile(tmp_path):
        with pytest.raises(RuntimeError, match="already been started"):
            xp.start_trace(tmp_path)
        with xp.StepTrace("train_step", step_num=7), xp.Trace("a_region_of_mine"):
            y = torch.ones(3).to(XLA) * 2
    torch.testing.assert_close(y.cpu(), torch.full((3,), 2.0))
    (path,) = tmp_path.rglob("*.xplane.pb")
    assert b"a_region_of_mine" in path.read_bytes()
    assert b"train_step" in path.read_bytes()
    assert re.search(rb"PjitFunction\(xla:0 trace \d+\)", path.read_bytes())  # a launch
    with pytest.raises(RuntimeError, match="No profile started"):
        xp.stop_trace()


def test_another_libtpu_than_jax_goes_with_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", ModuleType("libtpu"))
    installed = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "0.0.1" if name == "libtpu" else installed(name)
    )
    for start in (lambda: xp.start_trace(tmp_path), lambda: xp.start_server(free_port())):
        with pytest.raises(xla_dynamo.XlaDynamoError, match=r"libtpu 0\.0\.1 is.*jax\[tpu\]"):
            start()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return listening.getsockname()[1]


def test_a_server_lives_as_long_as_it_is_kept(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not a port"):
        xp.start_server(70_000)
    port = free_port()
    server = xp.start_server(port)
    with pytest.raises(RuntimeError, match="did not start"):
        xp.start_server(free_port())
    xp.trace(f"localhost:{port}", tmp_path, duration_ms=10)
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1
    assert server.port == port
    del server
    again = xp.start_server(free_port())
    assert again.port != port


def test_another_process_is_not_profiled_from_here(tmp_path: Path) -> None:
    with pytest.raises(xla_dynamo.XlaDynamoError, match=r"jax\.collect_profile"):
        xp.trace("10.0.0.2:8466", tmp_path)
