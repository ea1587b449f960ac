"""FX targets for random ops that are pure functions of a PRNG key, and the keys themselves.

PyTorch's random ops draw from a global generator. Here each is `call(op, index, key, ...)`: its
result is a function of the graph's key and of `index`, the op's position among the random ops. Each
call of the graph draws a new key from torch's default CPU generator, so that torch.manual_seed
makes a run reproducible and no two calls have the same random numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from .torch_private import FakeTensor

KEY_SHAPE = (2,)


KEY_DTYPE = torch.uint32


def call(op: Any, index: int, key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`op(*args, **kwargs)` with its randomness given by `key` and `index` (FX target).

    Called only to infer shapes: random numbers come from the op's rule.
    """
    return op(*args, **kwargs)


def new_key() -> torch.Tensor:
    """A fresh key from torch's default generator: uint32 of shape [2] (FX target)."""
    return torch.empty(1, dtype=torch.int64, device="cpu").random_().view(KEY_DTYPE)


def is_random(node: Node) -> bool:
    """Whether the node draws from PyTorch's generator."""
    return (
        node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
    )


def fake_mode(graph: Graph) -> Any:
    """The fake mode that the values in `graph` belong to."""
    for node in graph.nodes:
        value = node.meta.get("val")
        for leaf in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(leaf, FakeTensor):
                return leaf.fake_mode
    raise AssertionError("a graph of AOTAutograd holds fake tensors")
