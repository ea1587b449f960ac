"""Constants and keys of a graph become its last arguments."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import context, ops, traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.aten.lift import lift_constants, lift_rng_keys
from xla_dynamo.backend.passes.joint.functionalize_rng import functionalize_rng

pytestmark = pytest.mark.spine
X = torch.arange(3.0)


def test_constants() -> None:
    constant = torch.tensor([1.0, 2.0, 3.0])
    module = traced(lambda x: x * constant + constant, X)
    told = context()
    assert lift_constants(module.graph, told)
    assert [c.tolist() for c in told.lifted.constants] == [[1.0, 2.0, 3.0]]
    module.graph.lint()
    module.recompile()
    assert torch.equal(module(X, *told.lifted.constants)[0], X * constant + constant)
    assert fx.placeholders(module.graph)[-1].meta["val"].shape == (3,)
    assert not lift_constants(module.graph, told)


def test_keys_come_after_constants() -> None:
    constant = torch.ones(3)
    module = traced(lambda x: torch.rand_like(x) + constant, X)
    told = context()
    functionalize_rng(module.graph, told)
    lift_constants(module.graph, told)
    assert lift_rng_keys(module.graph, told)
    assert told.lifted.keys == 1
    shapes = [node.meta["val"].shape for node in fx.placeholders(module.graph)]
    assert shapes == [(3,), (3,), (2,)]
    assert not [op for op in ops(module.graph) if "new_key" in op]
    assert not lift_rng_keys(module.graph, told)
