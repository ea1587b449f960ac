"""What the host does between programs: sizes, leading parts, views of memory."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx, host_ops

pytestmark = pytest.mark.spine
X = torch.arange(12.0).reshape(3, 4)


def test_a_size_is_read_or_refused() -> None:
    assert host_ops.size(torch.tensor(3), "too many") == 3
    with pytest.raises(RuntimeError, match=r"^too many$"):
        host_ops.size(torch.tensor(-1), "too many")


def test_leading_parts_are_copies_unless_they_are_all() -> None:
    part = host_ops.leading(X, torch.tensor(2))
    assert torch.equal(part, X[:2])
    assert part.untyped_storage().nbytes() == part.nbytes
    assert host_ops.leading(X, torch.tensor(3)) is X
    assert torch.equal(host_ops.leading(X, torch.tensor(2), 1, True), X[:, :2].t())


def test_views_of_memory_begin_where_the_tensor_does_or_the_memory() -> None:
    part = X[1:]
    assert host_ops.strided(part, (2, 2), (4, 1), 1).tolist() == X[1:, 1:3].tolist()
    assert host_ops.memory(part, 3, 2, absolute=False).tolist() == [6, 7, 8]
    assert host_ops.memory(part, 3, 2, absolute=True).tolist() == [2, 3, 4]
    view = host_ops.strided(part, (2,), (1,), 2)
    assert view.data_ptr() == part[0, 2].data_ptr()
    with pytest.raises(RuntimeError, match="out of bounds"):
        host_ops.strided(part, (9,), (1,), 0)
    assert host_ops.strided(part, (0,), (1,), 8).shape == (0,)


def test_host_steps_are_told_from_ops() -> None:
    graph = traced(lambda x: x.sum() + x, X).graph
    assert not any(map(host_ops.is_host_step, graph.nodes))
    node = fx.calls(graph)[0]
    node.target = host_ops.leading
    assert host_ops.is_host_step(node)
