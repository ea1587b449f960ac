"""Long programs have the cores to themselves, short ones do not pay for it."""

from __future__ import annotations

import pytest
import torch

from xla_dynamo.backend.runtime import openmp


def test_only_long_programs_have_the_cores_to_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(openmp, "end_threads", lambda: ended.append(1))

    def run(size: int, threads: int) -> int:
        torch.set_num_threads(threads)
        function = torch.compile(lambda x: x.sin().sinh(), backend="xla", dynamic=False)
        ended.clear()
        x = torch.rand(size)
        torch.testing.assert_close(function(x), x.sin().sinh())
        return len(ended)

    before = torch.get_num_threads()
    try:
        assert run(2**10, threads=2) == 0
        assert run(2**20, threads=2) == 1
        assert run(2**20, threads=1) == 0  # there are no others
        assert run(2**20, threads=8) == 0  # they would cost more than they take
    finally:
        torch.set_num_threads(before)
