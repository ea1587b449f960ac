"""Replace random ops by pure functions of a PRNG key (see graph/rng_keys.py).

It is done on the joint graph of forward and backward: the key is saved for backward like an
activation, so a dropout that activation checkpointing runs twice draws the same mask twice.
"""

from __future__ import annotations

import torch
from torch.fx import Graph

from xla_dynamo.backend.graph import rng_keys
from xla_dynamo.backend.lowering.registry import draws
from xla_dynamo.backend.passes.contract import Context


def functionalize_rng(graph: Graph, context: Context) -> bool:
    """Rewrite the random ops of `graph` that have a rule which takes a key.

    Fused attention is tagged as random too, for its dropout; its rule has none and takes no key.
    """
    random = [n for n in graph.nodes if rng_keys.is_random(n) and draws(n.target)]
    if not random:
        return False
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        key = graph.call_function(rng_keys.new_key)
    # Made like no other node: within a checkpoint, backward would draw another key.
    with rng_keys.fake_mode(graph):
        key.meta["val"] = torch.empty(rng_keys.KEY_SHAPE, dtype=rng_keys.KEY_DTYPE, device="cpu")
    for index, node in enumerate(random):
        if node.kwargs.get("generator") is None:
            node.args = (node.target, index, key, *node.args)
            node.target = rng_keys.call
    return True
