"""Loops: of the host over calls of a function, or unrolled into one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """(carry, ys) after carry, y = fn(carry, x) for each slice x of the leaves of `xs`; unrolled.

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


def scan_layers(
    layers: Iterable[torch.nn.Module],
    input_data: Any,
    partition_fn: Any = None,
    is_layer_pure: bool = False,
) -> Any:
    """The output of the last layer, each fed with that of the one before."""
    for layer in layers:
        input_data = layer(input_data)
    return input_data


def fori_loop(lower: Any, upper: Any, body_fun: Callable[..., Any], *input_value: Any) -> Any:
    """What body_fun gives after int(upper) - int(lower) calls, each fed with the last result."""
    values = input_value
    for _ in range(int(lower), int(upper)):
        values = _as_tuple(body_fun(*values))
    return values


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """carried_inputs after body_fn as long as cond_fn is true of them; each test is a barrier."""
    values = tuple(carried_inputs)
    more = tuple(additional_inputs or ())
    while bool(cond_fn(*values, *more)):
        values = _as_tuple(body_fn(*values, *more))
    return values


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    *carried_tensors: torch.Tensor,
) -> Any:
    """train_step of each slice along dimension 0 of `iterable_tensors`, with backward.

    train_step(*slices, *carried) gives the loss, or (loss, *carried).

    Returns:
        The sum of the losses, or (sum, *carried) if anything is carried.
    """
    total: Any = 0.0
    carried: tuple[Any, ...] = carried_tensors
    for slices in zip(*iterable_tensors, strict=True):
        loss, *rest = _as_tuple(train_step(*slices, *carried))
        carried = tuple(rest) if carried else ()
        loss.backward()
        total = total + loss.detach()
    return (total, *carried) if carried else total


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (list, tuple)) else (result,)
