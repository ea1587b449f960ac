"""The coordination service in a process of its own, which does not die with who started it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.runtime import coordinator

pytestmark = pytest.mark.spine

DIES = f"""
import importlib.util, os
spec = importlib.util.spec_from_file_location("coordinator", {coordinator.__file__!r})
coordinator = importlib.util.module_from_spec(spec)
spec.loader.exec_module(coordinator)
print(coordinator.Apart(1, 10, grace=25).address, flush=True)
os._exit(3)
"""


def test_it_outlives_who_started_it() -> None:
    start = time.monotonic()
    died = subprocess.run([sys.executable, "-c", DIES], capture_output=True, text=True, check=False)
    assert time.monotonic() - start < 20  # nobody waits for the end of what it printed
    assert died.returncode == 3, died.stderr
    address = died.stdout.strip()
    client = jax_adapter.coordination_client(address, 0, 10)
    client.key_value_set("cause", "why it died")
    assert client.key_value_try_get("cause") == "why it died"
    client.shutdown()


def test_it_ends_at_once_when_all_have_left() -> None:
    service = coordinator.Apart(1, 10)
    client = jax_adapter.coordination_client(service.address, 0, 10)
    client.shutdown()
    start = time.monotonic()
    service.end()
    assert time.monotonic() - start < 10


def test_one_that_does_not_start_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"does not start: (.|\n)*(gaierror|not known|resolve)"):
        coordinator.Apart(1, 10, "no-such-host.invalid")


def test_a_port_that_is_taken_is_an_error() -> None:
    address, service = coordinator.serve(1, 10, "127.0.0.1")
    with pytest.raises(OSError, match="in use"):
        coordinator.serve(1, 10, "127.0.0.1", int(address.rpartition(":")[2]))
    del service
