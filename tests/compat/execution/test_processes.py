"""Programs of processes: every collective runs on all ranks, and none is a result for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_xla.core.xla_model as xm

from xla_dynamo.compat.execution import processes, sync
from xla_dynamo.compat.recording import pending

Made = list[torch.Tensor]


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.xla_dynamo.all_reduce([x], "sum", [0, 1], 2)[0]


@pytest.mark.parametrize(
    ("made_of", "kept"),
    [
        (lambda x: [all_reduce(x).clone()], 1),
        (lambda x: [all_reduce(x) * 0.5], 1),
        (lambda x: [all_reduce(all_reduce(x) * 2)], 2),  # the inner one: not through the outer one
        (lambda x: [torch.zeros_like(all_reduce(x))], 2),
        (lambda x: [all_reduce(x.int()) * 0], 2),
        (lambda x: [all_reduce(x) * 2, all_reduce(x + 1)][:1], 2),
    ],
)
def test_a_sum_is_a_result_unless_one_is_surely_made_of_it(
    made_of: Callable[[torch.Tensor], Made], kept: int
) -> None:
    x = torch.ones(4, device=xm.xla_device())
    xm.mark_step()
    trace = pending.trace(x.device)
    made = made_of(x)
    live = sync.alive(trace)
    try:
        assert len(live) == len(made)
        found = processes._with_collectives(trace.state.path(), live)
        assert set(live) <= set(found)
        assert len(found) == kept
    finally:
        del made
        trace.clear()  # there are no two replicas to run it
