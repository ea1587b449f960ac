"""Call a function in eager PyTorch and compiled, on equal inputs, and compare all one can see."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import xla_dynamo


def fallbacks() -> dict[str, int]:
    """What ran on the CPU in eager PyTorch since the metrics were reset."""
    return {k: v for k, v in xla_dynamo.counters().items() if k.startswith("fallback")}


def assert_like_eager(function: Callable[..., Any], *inputs: Any, calls: int = 1) -> None:
    """`function` compiled gives eager's results, gradients, aliases and effects on its inputs.

    Strides, dtypes and requires_grad of results count too. `calls` is how often it is called in a
    row on the same inputs. Nothing may fall back.
    """
    compiled = torch.compile(function, backend="xla")
    theirs, ours = (copy.deepcopy(inputs) for _ in range(2))
    for _ in range(calls):
        actual, expected = _call(compiled, ours), _call(function, theirs)
        assert_same(actual[:2], expected[:2])
        assert_same(ours, theirs)
        # PyTorch leaves the strides of gradients to whoever computes them.
        torch.testing.assert_close(actual[2], expected[2])
    assert fallbacks() == {}


def assert_same(actual: Any, expected: Any) -> None:
    """The same structure of the same values; tensors agree in all that is visible of them."""
    flat, spec = pytree.tree_flatten(actual)
    flat_, spec_ = pytree.tree_flatten(expected)
    assert spec == spec_
    for ours, theirs in zip(flat, flat_, strict=True):
        assert type(ours) is type(theirs)
        if not isinstance(ours, Tensor):
            assert ours == theirs
            continue
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert _strides(ours) == _strides(theirs)
        assert ours.requires_grad == theirs.requires_grad
        torch.testing.assert_close(ours.detach(), theirs.detach(), equal_nan=True)
    assert _aliases(flat) == _aliases(flat_)


def _strides(tensor: Tensor) -> list[int]:
    """The strides that mean something: those between elements."""
    sizes = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in sizes if size > 1 and tensor.numel()]


def _call(
    function: Callable[..., Any], inputs: tuple[Any, ...]
) -> tuple[Any, list[tuple[int, int]], list[Tensor | None]]:
    """Results, who shares memory with whom, and gradients by the inputs that require them."""
    results = function(*inputs)
    leaves = [x for x in pytree.tree_leaves(results) if isinstance(x, Tensor) and x.requires_grad]
    sources = [x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor) and x.requires_grad]
    gradients: list[Tensor | None] = []
    if leaves and sources:
        weights = [torch.linspace(-1, 1, x.numel()).view(x.shape).to(x.dtype) for x in leaves]
        gradients += torch.autograd.grad(leaves, sources, weights, allow_unused=True)
    return results, _aliases(pytree.tree_leaves((inputs, results))), gradients


def _aliases(leaves: list[Any]) -> list[tuple[int, int]]:
    """The pairs of tensors that share a storage, by position; (i, i) where objects are one."""
    tensors = [(i, x) for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    return [
        (i, i) if x is y else (i, j)
        for i, x in tensors
        for j, y in tensors
        if i < j and x.numel() and _storage(x) == _storage(y)
    ]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
