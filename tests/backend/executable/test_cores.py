"""Long programs have the cores to themselves, short ones do not pay for it."""

from __future__ import annotations

import pytest
import torch

from xla_dynamo.backend.runtime import openmp


def test_only_long_programs_have_the_cores_to_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(openmp, "end_threads", lambda: ended.append(1))

    def run(size: int) -> int:
        function = torch.compile(lambda x: x.sin() + x.cos(), backend="xla", dynamic=False)
        ended.clear()
        x = torch.rand(size)
        torch.testing.assert_close(function(x), x.sin() + x.cos())
        return len(ended)

    assert run(2**10) == 0
    assert run(2**20) == 1
