"""A program with collectives is agreed upon before it is compiled, and told of at each launch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend.executable import joint
from xla_dynamo.backend.runtime import pjrt, transfers
from xla_dynamo.errors import ReplicaError

pytestmark = pytest.mark.spine
ops = torch.ops.xla_dynamo


class Job:
    """Notes what it is told, in the place of `runtime.job.Job`."""

    alike = False

    def __init__(self) -> None:
        self.told: list[Any] = []

    def devices(self) -> tuple[Any, ...]:
        return (pjrt.device("cpu"),)

    def announce(self, name: str, *, known: bool) -> None:
        self.told.append(("launch", known))
        self.name = name

    def wait_for_first(self) -> None:
        self.told.append("wait")

    def compiled(self) -> None:
        self.told.append("compiled")

    def explain(self, error: Exception) -> None:
        raise ReplicaError("why") from error


def test_what_the_others_hear() -> None:
    job: Any = Job()

    def compile(on: tuple[Any, ...]) -> Any:
        assert on == job.devices()
        job.told.append("compile")
        return lambda *stacks: list(stacks)

    program = joint.JointProgram(job, ["all_reduce of x"], compile)
    assert job.told == [("launch", False), "wait", "compile", "compiled"]
    assert job.name.startswith("1 collective (all_reduce of x, ")
    x = transfers.upload(torch.arange(3.0), *job.devices())
    job.told.clear()
    for _ in range(3):
        assert transfers.download(program(x)[0]).tolist() == [0, 1, 2]
    assert job.told == [("launch", True)] * 2  # the first was told before the compile


def test_an_error_of_xla_is_explained() -> None:
    def fails(*stacks: Any) -> Any:
        raise ValueError("Gloo all-reduce failed")

    program = joint.JointProgram(Job(), ["one"], lambda on: fails)  # type: ignore[arg-type]
    with pytest.raises(ReplicaError, match="why"):
        program(transfers.upload(torch.ones(1), pjrt.device("cpu")))


def test_collectives_as_text() -> None:
    graph = traced(
        lambda x: ops.all_gather(ops.all_reduce([x + 1, x], "sum", [0, 1], 2)[0], 0, [0, 1], 2),
        torch.ones(2, 3),
    ).graph
    assert joint.collectives_of(graph) == [
        "xla_dynamo.all_reduce.default ['sum', 0, 1, 2] of float32[2, 3], float32[2, 3]",
        "xla_dynamo.all_gather.default [0, 0, 1, 2] of float32[4, 3]",
    ]
    assert joint.collectives_of(traced(lambda x: x + 1, torch.ones(2)).graph) == []
