"""Call a function in eager PyTorch and compiled, on equal inputs, and compare all one can see."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import xla_dynamo

from . import values

# The same structure of the same values; strides and shared memory count too.
assert_same = partial(values.assert_same, layout=True)


def fallbacks() -> dict[str, int]:
    """What ran on the CPU in eager PyTorch since the metrics were reset."""
    return {k: v for k, v in xla_dynamo.counters().items() if k.startswith("fallback")}


def door(backend: str = "xla", **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function by torch.compile, which remembers nothing of what came before."""

    def opened(function: Callable[..., Any]) -> Any:
        torch.compiler.reset()
        return torch.compile(function, backend=backend, **options)

    return opened


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
    return results, values.aliases(pytree.tree_leaves((inputs, results))), gradients
