"""The threads of PyTorch's kernels end when asked, and come back when needed."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from xla_dynamo.backend.runtime import openmp


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _kernel() -> float:
    return torch.ones(1000, 1000).relu().sum().item()


def test_threads_end_and_start_again() -> None:
    counts: list[int] = []

    def work() -> None:
        torch.set_num_threads(3)
        for _ in range(2):
            assert _kernel() == 10**6
            counts.append(_threads())
            openmp.end_threads()
            openmp.end_threads()  # there are none
            counts.append(_threads())

    before = torch.get_num_threads()
    try:  # each thread has a team of its own
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(before)
    assert counts[0] - counts[1] == counts[2] - counts[3] == 2


def test_a_library_without_the_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    openmp._pause.cache_clear()
    monkeypatch.setattr(openmp, "_libraries", lambda: ["/nowhere/libgomp.so.1", "libc.so.6"])
    try:
        openmp.end_threads()
    finally:
        openmp._pause.cache_clear()
    assert _kernel() == 10**6
