"""Run a function on the CPU and on an xla device, on equal inputs, and compare all one can see."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from xla_dynamo.errors import UnsupportedOp

from . import values

XLA = torch.device("xla:0")

# The same tree, with its tensors on the device.
assert_same = partial(values.assert_same, device=XLA)


def forget_pending() -> None:
    """Drop what the device has not run yet: what failed would be tried again with what follows."""
    from xla_dynamo.compat.recording import pending

    pending.forget()


def to_device(tree: Any) -> Any:
    """A copy on the xla device; what required gradients is a leaf that requires them."""

    def move(item: Any) -> Any:
        if isinstance(item, nn.Module):
            return copy.deepcopy(item).to(XLA)
        if isinstance(item, Tensor):
            return item.detach().to(XLA).requires_grad_(item.requires_grad)
        return item

    return pytree.tree_map(move, tree)


def assert_lockstep(function: Callable[..., Any], *inputs: Any, **tolerances: Any) -> Any:
    """`function` gives on the device what it gives on the CPU, and does the same to its inputs.

    Inputs and results are trees of tensors, modules and numbers. Every tensor that comes out is on
    the device. Returns what it gave on the device.
    """
    theirs, ours = copy.deepcopy(inputs), to_device(inputs)
    expected, actual = function(*theirs), function(*ours)
    assert_same(actual, expected, **tolerances)
    assert_same(_visible(ours), _visible(theirs), **tolerances)
    return actual


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


def door(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function` with its CPU tensors moved to the device, one trace, and the way back.

    Unlike `assert_lockstep`, it keeps what tensors share, and autograd flows through it.
    """
    from xla_dynamo.compat.execution import program_cache

    program_cache._runs.clear()  # of other cases: they take memory
    forget_pending()

    def opened(packed: Any) -> Any:
        given, moved = _carry(packed)
        try:
            with XLA:
                results = function(given)
            back = pytree.tree_map_only(Tensor, _home, results)
            _write_back(moved)
        except Exception:
            forget_pending()
            raise
        return back

    return opened


_Moved = dict[int, tuple[Tensor, Tensor, int]]


def _carry(packed: Any) -> tuple[Any, _Moved]:
    """`packed` on the device, and (old, new, version of new) of its tensors by id of the old."""
    moved: _Moved = {}

    def carry(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            if id(leaf) not in moved:
                new = _part(leaf) if _is_part(leaf) else leaf.to(XLA)
                moved[id(leaf)] = leaf, new, new._version
            return moved[id(leaf)][1]
        return XLA if leaf == torch.device("cpu") or leaf == "cpu" else leaf

    return pytree.tree_map(carry, packed), moved


def _is_part(tensor: Tensor) -> bool:
    """Whether as_strided could reach more of its memory than the tensor itself."""
    dense = tensor.layout is torch.strided and tensor.is_contiguous() and tensor.numel() > 0
    return dense and tensor.untyped_storage().nbytes() > tensor.nbytes


def _part(tensor: Tensor) -> Tensor:
    """The same view of the same memory on another device, which `.to` does not give."""
    if tensor.requires_grad:
        raise UnsupportedOp("A part of a tensor, moved to a device, does not keep the rest of it.")
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return whole.to(XLA).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _home(tensor: Tensor) -> Tensor:
    assert tensor.device.type == "xla", "a result is on the CPU"
    host, strides = tensor.cpu(), tensor.stride()
    if host.stride() == strides:
        return host
    return Laid.apply(host, strides)  # pyright: ignore


class Laid(torch.autograd.Function):
    """A dense tensor, laid out with gaps and elements that share memory; each has its gradient."""

    @staticmethod
    def forward(ctx: Any, host: Tensor, strides: tuple[int, ...]) -> Tensor:
        memory = torch.empty_strided(host.shape, strides, dtype=host.dtype)
        words = torch.empty(memory.untyped_storage().nbytes() // memory.itemsize, dtype=host.dtype)
        words[torch.arange(len(words)).as_strided(host.shape, strides)] = host
        return words.as_strided(host.shape, strides)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        return grad, None


def _write_back(moved: _Moved) -> None:
    """What the function wrote into its arguments, written into those on the CPU."""
    if torch.is_grad_enabled():
        return  # what looks at the arguments computes no gradients
    for old, new, version in moved.values():
        if new._version != version:
            if old.shape != new.shape:
                old.resize_(new.shape)
            old.copy_(new.cpu())
