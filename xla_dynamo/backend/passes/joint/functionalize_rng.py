"""Random ops -> pure functions of a key.

PyTorch's random ops draw from a hidden generator. Here each becomes `call(op, index, key, ...)`:
its numbers are a function of the graph's key and of `index`, its place in the graph. The key is
drawn from torch's default CPU generator, anew at every call of the graph, so that
torch.manual_seed makes a run reproducible and two calls never share numbers.

It is done on the joint graph of forward and backward: the key is saved for backward like an
activation, so a dropout that activation checkpointing runs twice draws the same mask twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from xla_dynamo.backend.graph.rng_keys import (
    KEY_DTYPE,
    KEY_SHAPE,
    call,
    fake_mode,
    is_random,
    new_key,
)


def functionalize(module: GraphModule, draws: Callable[[Any], bool]) -> None:
    """Rewrite, in place, the random ops of `module` for which `draws(op)` holds.

    Fused attention is tagged as random too, for its dropout; its rule has none and takes no key.
    """
    random = [n for n in module.graph.nodes if is_random(n) and draws(n.target)]
    if not random:
        return
    first = next(node for node in module.graph.nodes if node.op != "placeholder")
    with module.graph.inserting_before(first):
        key = module.graph.call_function(new_key)
    with fake_mode(module.graph):
        key.meta["val"] = torch.empty(KEY_SHAPE, dtype=KEY_DTYPE)
    for index, node in enumerate(random):
        if node.kwargs.get("generator") is not None:
            continue
        node.args = (node.target, index, key, *node.args)
        node.target = call
    module.recompile()
