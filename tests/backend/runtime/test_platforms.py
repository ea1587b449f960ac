"""The platform that programs run on where none is named."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from xla_dynamo.backend.runtime import platforms
from xla_dynamo.backend.runtime.tpu_chips import Chips

pytestmark = pytest.mark.spine


@pytest.mark.parametrize(
    ("configured", "jax_platforms", "environment", "expected"),
    [
        ("tpu", "cpu", "cuda", "tpu"),
        (None, "cuda,cpu", "cpu", "cuda"),
        (None, None, "cpu,tpu", "cpu"),
        (None, None, None, "cpu"),
    ],
)
def test_the_platform_is_the_one_that_is_asked_for_first(
    monkeypatch: pytest.MonkeyPatch,
    configured: str | None,
    jax_platforms: str | None,
    environment: str | None,
    expected: str,
) -> None:
    monkeypatch.setattr(platforms, "config", lambda: SimpleNamespace(platform=configured))
    flags = SimpleNamespace(jax_platforms=jax_platforms)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=flags))
    monkeypatch.setattr(platforms.tpu_chips, "here", lambda: Chips(0))
    monkeypatch.setattr(platforms.os.path, "exists", lambda path: False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if environment:
        monkeypatch.setenv("JAX_PLATFORMS", environment)
    assert platforms.default_platform() == expected


def test_an_accelerator_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "config", lambda: SimpleNamespace(platform=None))
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(platforms.tpu_chips, "here", lambda: Chips(1, "v5e"))
    assert platforms.default_platform() == "tpu"
    monkeypatch.setattr(platforms.tpu_chips, "here", lambda: Chips(0))
    monkeypatch.setattr(platforms.os.path, "exists", lambda path: path == "/dev/nvidia0")
    for plugin, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(platforms, "_has_cuda_plugin", lambda plugin=plugin: plugin)
        assert platforms.default_platform() == expected


def test_devices_of_each_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = "--xla_force_host_platform_device_count="
    monkeypatch.setenv("XLA_FLAGS", f"{flag}2 {flag}3 --xla_other=4")
    assert platforms.cpu_devices_of_each("5") == 3
    monkeypatch.delenv("XLA_FLAGS")
    assert platforms.cpu_devices_of_each("5") == 5
    assert platforms.cpu_devices_of_each() == 1
