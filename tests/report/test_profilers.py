"""Launches in torch.profiler's events."""

from __future__ import annotations

import torch
from torch import nn

import xla_dynamo.compat  # noqa: F401
from xla_dynamo.backend.runtime import pjrt


def launches(profile: torch.profiler.profile) -> dict[str, int]:
    found = [event for event in profile.key_averages() if event.key.startswith("xla ")]
    return {event.key.partition(" (")[0]: event.count for event in found}


def test_launches_are_events_of_torch_profiler() -> None:
    compiled = torch.compile(nn.Linear(4, 2), backend="xla")
    x, y = torch.ones(3, 4), torch.ones(3, device="xla")

    def step() -> None:
        compiled(x).sum().backward()
        (y + 1).cpu()

    step()
    with torch.profiler.profile() as profile:
        step()
        step()
    step()
    found = launches(profile)
    lazy = [name for name in found if name.startswith("xla xla:0 trace ")]
    assert {name: found[name] for name in found if name not in lazy} == {
        "xla 0/0 forward": 2,
        "xla 0/0 backward": 2,
    }
    assert [found[name] for name in lazy] == [2]


def test_an_event_names_the_line() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = torch.compile(double, backend="xla")
    compiled(torch.ones(2))
    with torch.profiler.profile() as profile:
        compiled(torch.ones(2))
    (name,) = [event.key for event in profile.key_averages() if event.key.startswith("xla ")]
    line = double.__code__.co_firstlineno + 1
    assert name == f"xla 0/0 inference (test_profilers.py:{line})"
    assert pjrt.Executable.__call__ is pjrt._launch
