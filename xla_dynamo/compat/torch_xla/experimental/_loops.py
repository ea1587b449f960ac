"""Loops: of the host over calls of a function, or unrolled into one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
        ValueError: `xs` has no tensor, or leading dimensions of different size, or of size 0; `fn`
            is no function.
    """
    if not callable(fn):
        raise ValueError(f"scan needs a function of (carry, x), got {fn!r}")
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
    """The output of the last layer, each fed with that of the one before; a tuple is its arguments.

    Raises:
        ValueError: the layers' parameters or buffers differ in name or shape.
    """
    layers = list(layers)
    _check_alike([dict(layer.named_parameters()) for layer in layers])
    _check_alike([dict(layer.named_buffers()) for layer in layers])
    for layer in layers:
        input_data = layer(*input_data) if isinstance(input_data, tuple) else layer(input_data)
    return input_data


def _check_alike(layers: Sequence[Mapping[str, torch.Tensor]]) -> None:
    """Tell of the first layer whose tensors differ in name or shape from those of layer 0."""
    for i, tensors in enumerate(layers[1:], start=1):
        missing, extra = layers[0].keys() - tensors.keys(), tensors.keys() - layers[0].keys()
        if missing or extra:
            raise ValueError(
                f"Layer {i} has mismatched keys: layer 0 has {sorted(missing)} and it has "
                f"{sorted(extra)}. scan_layers takes layers of one structure"
            )
        for name, tensor in tensors.items():
            if tensor.shape != layers[0][name].shape:
                raise ValueError(
                    f"Shape mismatch for {name!r} in layer {i}: expected "
                    f"{tuple(layers[0][name].shape)}, got {tuple(tensor.shape)}"
                )


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
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """train_step of each slice along dimension 0 of `iterable_tensors`, with backward.

    train_step(*slices, *carried) gives the loss, or (loss, *carried) if anything is carried. The
    gradients of the model's parameters grow by the mean of the slices' gradients.

    Returns:
        The mean of the losses; with what is carried behind it, if anything is.

    Raises:
        ValueError: `iterable_tensors` are none, empty, of several lengths or no tensors.
        AssertionError: train_step changes a carried tensor in place.
    """
    steps = _length(iterable_tensors)
    carried = carried_tensors
    mean: Any = 0.0
    for slices in zip(*iterable_tensors, strict=True):
        versions = [tensor._version for tensor in carried]
        loss, *rest = _as_tuple(train_step(*slices, *carried))
        if versions != [tensor._version for tensor in carried]:
            raise AssertionError("train_step changes a carried tensor in place: return a new one")
        loss = loss / steps
        loss.backward()
        mean, carried = mean + loss.detach(), tuple(rest) if carried else ()
    return (mean, *carried) if carried else mean


def _length(tensors: Sequence[torch.Tensor]) -> int:
    """The length of dimension 0, which must be one and the same."""
    if not tensors:
        raise ValueError("iterable_tensors cannot be empty")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Element {i} of iterable_tensors is not a tensor")
        if tensor.numel() == 0:
            raise ValueError(f"Element {i} of iterable_tensors is empty")
        if len(tensor) != len(tensors[0]):
            raise ValueError(f"Element {i} of iterable_tensors has inconsistent first dimension")
    return len(tensors[0])


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (list, tuple)) else (result,)
