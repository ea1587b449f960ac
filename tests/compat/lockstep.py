"""Run a function on the CPU and on an xla device, on equal inputs, and compare all one can see."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

XLA = torch.device("xla:0")


def to_device(tree: Any) -> Any:
    """A copy on the xla device; what required gradients is a leaf that requires them."""

    def move(item: Any) -> Any:
        if isinstance(item, nn.Module):
            return copy.deepcopy(item).to(XLA)
        if isinstance(item, Tensor):
            return item.detach().to(XLA).requires_grad_(item.requires_grad)
        return item

    return pytree.tree_map(move, tree)


def assert_lockstep(function: Callable[..., Any], *inputs: Any, **tolerances: float) -> Any:
    """`function` gives on the device what it gives on the CPU, and does the same to its inputs.

    Inputs and results are trees of tensors, modules and numbers. Every tensor that comes out is on
    the device. Returns what it gave on the device.
    """
    theirs, ours = copy.deepcopy(inputs), to_device(inputs)
    expected, actual = function(*theirs), function(*ours)
    assert_same(actual, expected, **tolerances)
    assert_same(_visible(ours), _visible(theirs), **tolerances)
    return actual


def assert_same(actual: Any, expected: Any, **tolerances: float) -> None:
    """`actual`, with its tensors on the device, is the same tree as `expected` on the CPU."""
    flat, spec = pytree.tree_flatten(actual)
    flat_, spec_ = pytree.tree_flatten(expected)
    assert spec == spec_
    for ours, theirs in zip(flat, flat_, strict=True):
        assert type(ours) is type(theirs)
        if not isinstance(ours, Tensor):
            assert ours == theirs
            continue
        assert ours.device == XLA
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.requires_grad == theirs.requires_grad
        torch.testing.assert_close(
            ours.detach().cpu(), theirs.detach(), equal_nan=True, **tolerances
        )


def _visible(inputs: tuple[Any, ...]) -> list[Any]:
    """Tensors of the inputs and their gradients; of modules, parameters and buffers."""
    seen: list[Any] = []
    for item in pytree.tree_leaves(inputs):
        if isinstance(item, nn.Module):
            seen.append(dict(item.state_dict()))
            seen.append({name: p.grad for name, p in item.named_parameters()})
        elif isinstance(item, Tensor):
            seen.append((item, item.grad if item.is_leaf else None))
    return seen
