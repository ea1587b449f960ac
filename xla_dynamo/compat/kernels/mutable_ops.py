"""Ops of libraries and scripts that write to their arguments: the CPU runs them, at once.

PyTorch's functionalization knows no functional form of torch.library.custom_op(mutates_args=...)
and refuses it. Here such an op runs on copies of its arguments, between which memory is shared as
it is between the arguments, and what it wrote goes back to the device. In graphs of torch.compile
the op is an argument of `auto_functionalized`, which runs on copies, too.

Private too, seen on torch 2.13: py_kernels of a HigherOrderOperator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from xla_dynamo.compat.execution import dispatch, sync
from xla_dynamo.compat.recording import metrics, pending
from xla_dynamo.compat.recording.trace import trace_of
from xla_dynamo.compat.values import torch_private
from xla_dynamo.compat.values.functionalization import transformed
from xla_dynamo.compat.values.torch_private import Key, is_functional
from xla_dynamo.compat.values.values import leaf, leaf_of, tensor, value_of

from .redispatch import redispatch

# PyTorch's own: aten and prims have kernels of this folder, c10d's are about other devices.
_OTHERS = frozenset({"aten", "c10d", "prim", "prims"})
_libraries: dict[str, torch.library.Library] = {}  # by op: the kernel lives as long as they do


def register_auto_functionalized() -> None:
    """Let torch.compile's form of these ops run on tensors of the device."""
    higher_order: Any = torch.ops.higher_order
    for op in (higher_order.auto_functionalized, higher_order.auto_functionalized_v2):
        op.fallthrough(Key.AutogradXLA)
        eager, other = (
            op.py_kernels[key] for key in (Key.CompositeExplicitAutograd, Key.Functionalize)
        )
        op.py_kernels[Key.Functionalize] = _auto_functionalized(eager, other)
        op._dispatch_cache.clear()


def register_known() -> None:
    """Register kernels for the ops that scripts have looked up by now."""
    for namespace in vars(torch.ops).values():
        if isinstance(namespace, type(torch.ops.aten)):
            for packet in list(vars(namespace).values()):
                if isinstance(packet, type(torch.ops.aten.add)):
                    register(packet)


def register(packet: Any) -> None:
    """Register a kernel for each overload of an op that writes to its arguments."""
    namespace, _, _ = packet._qualified_op_name.partition("::")
    if namespace in _OTHERS:
        return
    for op in (getattr(packet, overload) for overload in packet.overloads()):
        composite = op.has_kernel_for_dispatch_key(Key.CompositeImplicitAutograd)
        if not op._schema.is_mutable or composite:
            continue
        known = _libraries.pop(op.name(), None)
        if known is not None:  # of an op of that name that was defined before
            known._destroy()
        if not op.has_kernel_for_dispatch_key(Key.Functionalize):
            library = _libraries[op.name()] = torch.library.Library(namespace, "IMPL")
            library.impl(op.name().partition("::")[2], _kernel(op), "AutogradXLA")


def _kernel(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        tensors = _tensors((args, kwargs))
        if transformed() or not any(map(is_functional, tensors)):
            return redispatch(op, args, kwargs)  # a tracer's
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            leaves, spec = pytree.tree_flatten((args, kwargs))
            return _WithoutGradient.apply(op, spec, *leaves)
        return _run(op, args, kwargs)

    return kernel


class _WithoutGradient(torch.autograd.Function):
    """The op, whose results cannot be differentiated: PyTorch lets such ops have no formula."""

    @staticmethod
    def forward(ctx: Any, op: Any, spec: Any, *leaves: Any) -> Any:
        ctx.op = op
        return _run(op, *pytree.tree_unflatten(leaves, spec))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(f"{ctx.op} writes to its arguments: it has no formula for a gradient")


def _run(op: Any, args: Any, kwargs: Any) -> Any:
    """Run an op on copies of its arguments, and write to these what it wrote to the copies."""
    copies = _Copies(op, _tensors((args, kwargs)))
    results = dispatch.on_cpu(op, *pytree.tree_map_only(Tensor, copies.of, (args, kwargs)))
    named = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | kwargs
    written = [a.name for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
    copies.write_back(_tensors([named.get(name) for name in written]))
    return pytree.tree_map_only(Tensor, copies.back, results)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


class _Copies:
    """Tensors of the CPU for the arguments of an op.

    Raises:
        RuntimeError: arguments share memory in a way that copies cannot.
    """

    def __init__(self, op: Any, tensors: Sequence[Tensor]) -> None:
        self._home = _home(tensors)
        self._given: dict[int, Tensor] = {}
        self._copies: dict[int, Tensor] = {}
        self._bases: dict[int, Tensor] = {}  # of views that share memory, by the view
        for each in tensors:
            if id(each) not in self._copies:
                others = [x for x in tensors if x is not each and _share(x, each)]
                self._given[id(each)] = each
                self._copies[id(each)] = self._view(op, each) if others else _download(each)

    def _view(self, op: Any, view: Tensor) -> Tensor:
        """The copy of an argument that shares memory with another one: a view of a copy."""
        base = view if view._base is None else view._base
        if id(base) not in self._copies:
            self._given[id(base)], self._copies[id(base)] = base, _download(base).contiguous()
        self._bases[id(view)] = base
        made = _same_view(self._copies[id(base)], view)
        if made is None:
            raise RuntimeError(
                f"two arguments of {op} share memory, and one is no view of the other: clone() one"
            )
        return made

    def of(self, given: Tensor) -> Tensor:
        """The copy of an argument."""
        return self._copies[id(given)]

    def write_back(self, written: Sequence[Tensor]) -> None:
        """Give the arguments `written` the values of their copies, and so all that share them."""
        for target in {id(x): x for x in (self._bases.get(id(x), x) for x in written)}.values():
            copy, found = self._copies[id(target)], leaf_of(target)
            if found is None:
                continue  # a tensor of the CPU, which the op has written to
            home, meta = trace_of(found.value), found.value.meta
            torch_private.replace(target, leaf(sync.upload(home, copy, meta)))
            torch_private.commit(target)
            torch_private.sync(target)

    def back(self, result: Tensor) -> Tensor:
        """A result on the device: the argument itself, where the op returns that."""
        for key, copy in self._copies.items():
            if copy is result:
                return self._given[key]
        return _upload(result, self._home)


def _same_view(copy: Tensor, view: Tensor) -> Tensor | None:
    """The part of the row-major `copy` that `view` is of its base; None if strides cannot tell."""
    positions = torch.arange(copy.numel(), device="cpu")
    own = torch_private.same_view(positions.view(copy.shape), torch_private.view_of(view))
    if own.shape != view.shape or own.dtype != positions.dtype or view.dtype != copy.dtype:
        return None
    if own.numel() == 0:
        return copy.new_empty(own.shape)
    start = int(own[(0,) * own.dim()])
    seconds = [tuple(int(at == dim) for at in range(own.dim())) for dim in range(own.dim())]
    sized = zip(own.shape, seconds, strict=True)
    steps = [int(own[second]) - start if size > 1 else 1 for size, second in sized]
    found = own.shape, steps, start
    return copy.as_strided(*found) if torch.equal(positions.as_strided(*found), own) else None


def _share(x: Tensor, y: Tensor) -> bool:
    return x.device == y.device and x.device.type == "xla" and torch_private.is_alias(x, y)


def _download(given: Tensor) -> Tensor:
    return given if leaf_of(given) is None else sync.download(value_of(given))


def _upload(result: Tensor, home: torch.device) -> Tensor:
    return tensor(sync.upload(pending.trace(home), result))


def _home(tensors: Sequence[Tensor]) -> torch.device:
    return next(x.device for x in tensors if is_functional(x))


def _auto_functionalized(
    eager: Callable[..., Any], other: Callable[..., Any]
) -> Callable[..., Any]:
    def kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = _tensors((args, kwargs))
        if not any(map(is_functional, tensors)):
            return other(op, *args, **kwargs)
        args, kwargs = pytree.tree_map_only(Tensor, _download, (args, kwargs))
        results = eager(op, *args, **kwargs)
        metrics.count_fallback(op)
        home = _home(tensors)
        return pytree.tree_map_only(Tensor, lambda result: _upload(result, home), results)

    return kernel
