"""Reductions: padding is what changes nothing, and counts of elements are those of the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from xla_dynamo.backend.passes.padding.layouts import Dim, plain
from xla_dynamo.backend.passes.padding.padder import Fill, Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, Size, is_symbolic, product

from .views import flat

aten = torch.ops.aten
_SUMS = (aten.sum.default, aten.sum.dim_IntList, aten.nansum.default)
_ANY = (aten.any.default, aten.any.dim, aten.any.dims, aten.count_nonzero.default)
_ALL = (aten.all.default, aten.all.dim, aten.all.dims)
_FILLS: dict[Any, Fill] = {
    **dict.fromkeys((*_SUMS, *_ANY, aten.count_nonzero.dim_IntList), 0),
    **dict.fromkeys((*_ALL, aten.prod.default, aten.prod.dim_int), 1),
    **dict.fromkeys((aten.amax.default, aten.max.default), "lowest"),
    **dict.fromkeys((aten.amin.default, aten.min.default), "highest"),
    aten.linalg_vector_norm.default: 0,
    aten.logsumexp.default: "lowest",
}


def reduced_dims(x: Padded, dim: Any) -> list[int]:
    """The dimensions that an op's argument names: all where it names none."""
    rank = len(x.dims)
    if dim is None or dim == []:
        return list(range(rank))
    return [d % rank if rank else 0 for d in (dim if isinstance(dim, (list, tuple)) else [dim])]


def left(x: Padded, dims: Sequence[int], keepdim: bool) -> list[Dim]:
    """The dimensions of a result that is reduced along `dims`."""
    if keepdim:
        return [plain(1) if d in dims else dim for d, dim in enumerate(x.dims)]
    return [dim for d, dim in enumerate(x.dims) if d not in dims]


def _named(p: Padder, args: Sequence[Any]) -> dict[str, Any]:
    names = [a.name for a in p.node.target._schema.arguments]  # type: ignore[union-attr]
    return dict(zip(names, args, strict=True))


@pads(*_FILLS)
def reduction(p: Padder, x: Padded, *args: Any) -> Padded:
    """Whatever fills the padding with the op's identity."""
    named = _named(p, (x, *args))
    fill = _FILLS[p.node.target]
    dims = reduced_dims(x, named.get("dim"))
    if p.node.target is aten.linalg_vector_norm.default:
        fill = _of_norm(named["ord"])
    x = p.masked(x, dims, fill)
    return p.give(p.again(x, *args), left(x, dims, bool(named.get("keepdim"))))


def _of_norm(order: Any) -> Fill:
    if order == float("-inf") or order < 0:
        return "highest"
    return 0


def count(x: Padded, dims: Sequence[int]) -> Size:
    """How many elements are reduced to one."""
    return product(x.dims[d].size for d in dims)


def padded_sum(p: Padder, x: Padded, dims: Sequence[int], keepdim: bool, dtype: Any = None) -> Any:
    """The sum of the elements along `dims`."""
    kept = left(x, dims, keepdim)
    options = {} if dtype is None else {"dtype": dtype}
    x = p.masked(x, dims, 0)
    if not dims:
        return x
    return p.give(p.emit(aten.sum.dim_IntList, x, list(dims), keepdim, **options), kept)


def divided(p: Padder, x: Padded, number: Size) -> Padded:
    """`x` by a count, in the dtype of `x`."""
    divisor = p.runtime(number)
    if is_symbolic(number):
        divisor = p.emit(aten._to_copy.default, divisor, dtype=x.value.dtype)
    else:
        divisor = int(number)
    return p.give(p.emit(aten.div.Tensor, x, divisor), x.dims)


@pads(aten.mean.default, aten.mean.dim)
def mean(p: Padder, x: Padded, *args: Any) -> Padded:
    """The sum, by the count of this call."""
    named = _named(p, (x, *args))
    dims = reduced_dims(x, named.get("dim"))
    keepdim, dtype = bool(named.get("keepdim")), p.node.meta["val"].dtype
    if not x.padded_in(dims):
        return p.give(p.again(x, *args), left(x, dims, keepdim))
    total = padded_sum(p, wide(p, x, dtype), dims, keepdim)
    result = divided(p, total, count(x, dims))
    return p.give(p.emit(aten._to_copy.default, result, dtype=dtype), result.dims)


def wide(p: Padder, x: Padded, dtype: torch.dtype) -> Padded:
    """`x` in the dtype in which a result of `dtype` is summed up."""
    wanted = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    if x.value.dtype == wanted:
        return x
    return p.give(p.emit(aten._to_copy.default, x, dtype=wanted), x.dims)


def moments(p: Padder, x: Padded, dims: Sequence[int], correction: Any) -> tuple[Padded, Padded]:
    """Mean and variance along `dims`, which are kept with size 1, in the dtype of sums."""
    x = wide(p, x, x.value.dtype)
    number = count(x, dims)
    average = divided(p, padded_sum(p, x, dims, True), number)
    spread = p.give(p.emit(aten.sub.Tensor, x, average), x.dims)
    if spread.value.is_complex():
        raise Refused("a variance of complex numbers")
    square = p.give(p.emit(aten.mul.Tensor, spread, spread), x.dims)
    rest = sympy.Max(number - (1 if correction is None else correction), 0)
    return average, divided(p, padded_sum(p, square, dims, True), rest)


@pads(
    aten.var.correction,
    *(aten.std.correction, aten.var_mean.correction, aten.std_mean.correction),
)
def variance(p: Padder, x: Padded, dim: Any, correction: Any, keepdim: bool) -> Any:
    """var, std, with their means."""
    dims = reduced_dims(x, dim)
    op: Any = p.node.target
    kept = left(x, dims, keepdim)
    several = op in (aten.var_mean.correction, aten.std_mean.correction)
    if not x.padded_in(dims):
        made = p.again(x, dim, correction, keepdim)
        return p.give_all(made, [kept, kept]) if several else p.give(made, kept)
    average, found = moments(p, x, dims, correction)
    if op in (aten.std.correction, aten.std_mean.correction):
        found = p.give(p.emit(aten.sqrt.default, found), found.dims)
    results = [_finished(p, each, dims, keepdim, x.value.dtype) for each in (found, average)]
    return tuple(results) if several else results[0]


def _finished(
    p: Padder, x: Padded, dims: Sequence[int], keepdim: bool, dtype: torch.dtype
) -> Padded:
    made = p.emit(aten._to_copy.default, x, dtype=dtype)
    if keepdim or not dims:
        return p.give(made, x.dims)
    kept = left(x, dims, False)
    return p.give(p.emit(aten.view.default, made, [p.padded(d.size) for d in kept]), kept)


def _extreme(fill: Fill) -> Callable[..., Any]:
    def rule(p: Padder, x: Padded, dim: Any = None, keepdim: bool = False) -> Any:
        several = isinstance(p.node.meta["val"], (tuple, list))
        if dim is None:
            x = flat(p, x)
            made = p.again(p.masked(x, [0], fill), None, False)
            return p.give(made, [])
        dims = reduced_dims(x, dim)
        x = p.masked(p.plainly(x, dims), dims, fill)
        made, kept = p.again(x, dim, keepdim), left(x, dims, keepdim)
        return p.give_all(made, [kept, kept]) if several else p.give(made, kept)

    return rule


# Positions count elements: the padding is behind them, and the first of equals is taken.
pads(aten.argmax.default, aten.max.dim)(_extreme("lowest"))
pads(aten.argmin.default, aten.min.dim)(_extreme("highest"))


@pads(aten.aminmax.default)
def aminmax(p: Padder, x: Padded, dim: Any, keepdim: bool) -> Any:
    """Both ends."""
    dims = reduced_dims(x, dim)
    kept = left(x, dims, keepdim)
    ends = []
    for op, fill in ((aten.amin.default, "highest"), (aten.amax.default, "lowest")):
        ends.append(p.give(p.emit(op, p.masked(x, dims, fill), dims, keepdim), kept))  # type: ignore[arg-type]
    return tuple(ends)
