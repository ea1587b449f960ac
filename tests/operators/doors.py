"""The ways in which a user's function reaches XLA: a door turns a function into one that does.

The function takes and returns nested lists, tuples and dicts of CPU tensors. Autograd flows through
a door: gradients of what the opened function returns are computed behind the door too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.errors import UnsupportedOp

Function = Callable[[Any], Any]
Door = Callable[[Function], Function]


def compiled(function: Function) -> Function:
    """torch.compile(backend="xla", fullgraph=True): one graph, or an error."""
    torch.compiler.reset()
    return torch.compile(function, backend="xla", fullgraph=True)


def broken(function: Function) -> Function:
    """torch.compile(backend="xla"), where Dynamo may break the graph and run ops in eager."""
    torch.compiler.reset()
    return torch.compile(function, backend="xla")


def traced(function: Function) -> Function:
    """torch.compile(backend="aot_eager"): the same road without XLA, to tell whose fault it is."""
    torch.compiler.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


def lazy(function: Function) -> Function:
    """Tensors moved to xla:0, the function recorded there in one window, and the way back."""
    from xla_dynamo.compat.device import register
    from xla_dynamo.compat.execution import program_cache

    there = torch.device("xla:0")
    program_cache._runs.clear()  # of other cases: they take memory
    register._windows.clear()

    def opened(packed: Any) -> Any:
        given, moved = _carry(packed, there)
        try:
            with there:
                results = function(given)
            back = pytree.tree_map_only(torch.Tensor, _home, results)
            _write_back(moved)
        except Exception:
            register._windows.clear()  # what failed would be tried again with what follows
            raise
        return back

    return opened


_Moved = dict[int, tuple[torch.Tensor, torch.Tensor, int]]


def _carry(packed: Any, to: torch.device) -> tuple[Any, _Moved]:
    """`packed` with its tensors and devices on `to`; (old, new, version of new) by id of old."""
    moved: _Moved = {}

    def carry(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in moved:
                new = _part(leaf, to) if _is_part(leaf) else leaf.to(to)
                moved[id(leaf)] = leaf, new, new._version
            return moved[id(leaf)][1]
        return to if leaf == torch.device("cpu") or leaf == "cpu" else leaf

    return pytree.tree_map(carry, packed), moved


def _is_part(tensor: torch.Tensor) -> bool:
    """Whether as_strided could reach more of its memory than the tensor itself."""
    dense = tensor.layout is torch.strided and tensor.is_contiguous() and tensor.numel() > 0
    return dense and tensor.untyped_storage().nbytes() > tensor.nbytes


def _part(tensor: torch.Tensor, to: torch.device) -> torch.Tensor:
    """The same view of the same memory on another device, which `.to` does not give."""
    if tensor.requires_grad:
        raise UnsupportedOp("A part of a tensor, moved to a device, does not keep the rest of it.")
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return whole.to(to).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _home(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.device.type == "xla", "a result is on the CPU"
    host, strides = tensor.cpu(), tensor.stride()
    if host.stride() == strides:
        return host
    return _Laid.apply(host, strides)  # pyright: ignore


class _Laid(torch.autograd.Function):
    """A dense tensor, laid out with gaps and elements that share memory; each has its gradient."""

    @staticmethod
    def forward(ctx: Any, host: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        memory = torch.empty_strided(host.shape, strides, dtype=host.dtype)
        words = torch.empty(memory.untyped_storage().nbytes() // memory.itemsize, dtype=host.dtype)
        words[torch.arange(len(words)).as_strided(host.shape, strides)] = host
        return words.as_strided(host.shape, strides)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # pyright: ignore
        return grad, None


def _write_back(moved: _Moved) -> None:
    """What the function wrote into its arguments, written into those on the CPU."""
    if torch.is_grad_enabled():
        return  # only `values.forward` looks at the arguments
    for old, new, version in moved.values():
        if new._version != version:
            if old.shape != new.shape:
                old.resize_(new.shape)
            old.copy_(new.cpu())


DOORS: dict[str, Door] = {"compile": compiled, "lazy": lazy}
