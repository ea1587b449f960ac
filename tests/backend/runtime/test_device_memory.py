from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from xla_dynamo.backend.runtime import device_memory, pjrt, transfers

pytestmark = pytest.mark.spine


def test_live_arrays_of_the_cpu_are_added_up() -> None:
    device = pjrt.device("cpu")
    before = device_memory.stats(device)["bytes_in_use"]
    array = transfers.upload(torch.zeros(256, 4), device)
    stats = device_memory.stats(device)
    assert stats["bytes_in_use"] - before == array.nbytes == 4096
    assert stats["bytes_limit"] > stats["bytes_in_use"]


def test_a_device_that_counts_is_asked() -> None:
    told = {"bytes_in_use": 3, "bytes_limit": 7}
    assert device_memory.stats(SimpleNamespace(memory_stats=lambda: told)) is told


def test_the_process_has_memory() -> None:
    assert device_memory.of_process() > 2**20
