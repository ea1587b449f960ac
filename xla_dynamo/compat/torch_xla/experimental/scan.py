"""scan: a function over the leading dimension of tensors, carrying state along; unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    partition_fn: Any = None,
    is_fn_pure: bool = False,
) -> tuple[Any, Any]:
    """(carry, ys) after carry, y = fn(carry, x) for each slice x of the leaves of `xs`.

    The y are stacked, leaf by leaf. Gradients flow through.

    Raises:
        ValueError: `xs` has no tensor, or leading dimensions of different size, or of size 0.
    """
    lengths = {leaf.shape[0] for leaf in pytree.tree_leaves(xs) if isinstance(leaf, torch.Tensor)}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"scan needs one leading dimension above 0, got {sorted(lengths)}")
    carry, results = init, []
    for i in range(lengths.pop()):
        carry, y = fn(carry, pytree.tree_map_only(torch.Tensor, lambda t, i=i: t[i], xs))
        results.append(y)
    return carry, pytree.tree_map(_stack, *results)


def _stack(*leaves: Any) -> Any:
    return torch.stack(leaves) if isinstance(leaves[0], torch.Tensor) else leaves[0]
