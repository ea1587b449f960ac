"""What a process does until it has its chip; whole processes: tests/compat's tpu_program."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from xla_dynamo.backend.runtime import tpu_process
from xla_dynamo.backend.runtime.tpu_slice import Slice
from xla_dynamo.errors import NotAvailable

pytestmark = pytest.mark.spine


def test_libtpu_is_told_of_all_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TPU_PROCESS_ADDRESSES", "CLOUD_TPU_TASK_ID", "TPU_VISIBLE_CHIPS"):
        monkeypatch.setenv(name, "another")
    before: dict[str, str] = {}

    client = SimpleNamespace(local_devices=lambda: ["the chip"])

    class Job:
        def exchange(self, tag: str, item: tuple[int, str]) -> list[Any]:
            task, address = item
            host, port = address.split(":")
            assert (tag, task, host) == ("addresses of TPU processes", 3, "b")
            self.port = port
            return [item, (0, "a:1"), (2, "b:3"), (1, "a:2")]  # torchrun's ranks have any order

        def take(self, client: Any) -> None:
            self.client = client

    def device(platform: str) -> Any:
        before.update(os.environ)
        return SimpleNamespace(client=client)

    monkeypatch.setattr(tpu_process.pjrt, "device", device)
    joint: Any = Job()
    with pytest.MonkeyPatch.context() as undone:
        undone.setattr(os, "environ", dict(os.environ))
        tpu_process.connect(joint, Slice(("a", "b"), 1, ("0", "1"), "2,2,1"), 1)
        with pytest.raises(NotAvailable, match="chip 1 1 devices, where 2 were expected"):
            tpu_process.connect(joint, Slice(("a", "b"), 1, ("0", "1"), "2,2,1", 2), 1)
    assert joint.client is client
    assert before["TPU_PROCESS_ADDRESSES"] == f"a:1,a:2,b:3,b:{joint.port}"
    assert before["TPU_PROCESS_PORT"] == joint.port
    assert (before["CLOUD_TPU_TASK_ID"], before["TPU_VISIBLE_CHIPS"]) == ("3", "1")


def test_one_process_of_a_host_leaves_it_to_libtpu(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(local_devices=lambda: [0, 1, 2, 3])
    monkeypatch.setattr(tpu_process.pjrt, "device", lambda of: SimpleNamespace(client=client))
    taken: list[Any] = []
    before = dict(os.environ)
    tpu_process.connect(SimpleNamespace(take=taken.append), None, 0)  # type: ignore[arg-type]
    assert (taken, dict(os.environ)) == ([client], before)
