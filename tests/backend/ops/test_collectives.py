"""Ops among replicas: the shapes of their results, and that the CPU has no replicas."""

from __future__ import annotations

import pytest
import torch

from xla_dynamo.backend.ops import collectives
from xla_dynamo.errors import NotAvailable

pytestmark = pytest.mark.spine
assert collectives
ops = torch.ops.xla_dynamo
X = torch.empty(4, 6, device="meta", dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("result", "shape"),
    [
        (ops.all_reduce([X], "sum", [0, 1], 2)[0], (4, 6)),
        (ops.all_gather(X, -1, [0, 1, 2], 3), (4, 18)),
        (ops.reduce_scatter(X, "sum", 1, [0, 1, 2], 3), (4, 2)),
        (ops.all_to_all(X, 1, 0, [0, 1], 2), (8, 3)),
        (ops.all_to_all(X, 1, 1, [0, 1], 2), (4, 6)),
        (ops.collective_permute(X, [0, 1]), (4, 6)),
        (ops.own_part(X, 0, [0, 1], 2), (2, 6)),
    ],
)
def test_shapes(result: torch.Tensor, shape: tuple[int, ...]) -> None:
    assert (tuple(result.shape), result.dtype) == (shape, X.dtype)


def test_on_the_cpu_there_are_no_replicas() -> None:
    with pytest.raises(NotAvailable, match="all_reduce exchanges values among replicas"):
        ops.all_reduce([torch.ones(2)], "sum", [0, 1], 2)


def test_all_are_listed() -> None:
    names = {str(op).split(".")[1] for op in collectives.COLLECTIVES}
    defined = {
        name for name in vars(collectives) if hasattr(getattr(collectives, name), "_opoverload")
    }
    assert names == defined
