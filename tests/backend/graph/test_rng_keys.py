"""Keys of random ops: drawn from PyTorch's generator, one a call."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx, rng_keys

pytestmark = pytest.mark.spine


def test_keys_are_two_words_and_follow_the_seed() -> None:
    torch.manual_seed(1)
    keys = [rng_keys.new_key() for _ in range(50)]
    assert all(key.shape == rng_keys.KEY_SHAPE and key.dtype == rng_keys.KEY_DTYPE for key in keys)
    assert len({tuple(key.tolist()) for key in keys}) == 50
    torch.manual_seed(1)
    assert torch.equal(rng_keys.new_key(), keys[0])


def test_which_nodes_are_random() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + torch.bernoulli(x) + x.exp() + torch.ones(3)

    calls = fx.calls(traced(function, torch.ones(3)).graph)
    random = [node.name for node in calls if rng_keys.is_random(node)]
    assert random == ["rand_like", "bernoulli"]


def test_a_call_with_a_key_has_the_shape_of_the_op() -> None:
    x = torch.ones(2, 3)
    result = rng_keys.call(torch.ops.aten.rand_like.default, 0, rng_keys.new_key(), x)
    assert result.shape == (2, 3)


def test_the_fake_mode_is_that_of_any_value() -> None:
    graph = traced(lambda x: x.sort(), torch.ones(3)).graph
    mode = fx.placeholders(graph)[0].meta["val"].fake_mode
    assert rng_keys.fake_mode(graph) is mode
    for node in fx.placeholders(graph):
        del node.meta["val"]
    assert rng_keys.fake_mode(graph) is mode  # of a tuple
    with pytest.raises(AssertionError, match="holds fake tensors"):
        rng_keys.fake_mode(torch.fx.Graph())
