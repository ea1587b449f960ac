"""Ops along one dimension, over which all others are a batch; that dimension is not padded."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, is_symbolic

from .reductions import left

aten = torch.ops.aten


def _refuse(x: Padded, d: int) -> None:
    if x.padded_in([d]):
        raise Refused("it mixes a padded dimension", [x.dims[d].size])


@pads(aten.median.dim, aten.nanmedian.dim, aten.mode.default)
def chosen(p: Padder, x: Padded, dim: int = -1, keepdim: bool = False) -> Any:
    """An element of each row, and where it is."""
    return _chosen(p, x, dim, keepdim, (dim, keepdim))


@pads(aten.kthvalue.default)
def kth(p: Padder, x: Padded, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The same."""
    return _chosen(p, x, dim, keepdim, (p.padded(k), dim, keepdim))


def _chosen(p: Padder, x: Padded, dim: int, keepdim: bool, rest: tuple[Any, ...]) -> Any:
    d = dim % max(len(x.dims), 1)
    if x.dims:
        _refuse(x, d)
    kept = left(x, [d], keepdim) if x.dims else []
    return p.give_all(p.again(x, *rest), [kept, kept])


@pads(aten.unfold.default, aten.unfold_copy.default)
def unfold(p: Padder, x: Padded, dim: int, size: Any, step: Any) -> Padded:
    """Windows: those of elements come first."""
    if is_symbolic(size) or is_symbolic(step) or not x.dims:
        raise Refused("a window is as large as a size")
    d = dim % len(x.dims)
    x, out = p.plainly(x, [d]), p.out()
    made = p.again(x, dim, size, step)
    if made.meta["val"].shape[d] > p.padded(out[d]):
        made = p.emit(aten.slice.Tensor, made, d, 0, p.padded(out[d]))
    dims = list(x.dims)
    dims[d] = plain(out[d])
    return p.give(made, [*dims, plain(size)])


@pads(aten.searchsorted.Tensor)
def searchsorted(p: Padder, sorted_: Padded, x: Padded, *rest: Any) -> Padded:
    """Rows of a batch, or all in one row, whose elements stay as they are."""
    _refuse(sorted_, len(sorted_.dims) - 1)
    for d in range(len(sorted_.dims) - 1):
        x = p.moved(x, d, p.plainly(sorted_, [d]).dims[d])
    rest = tuple(p.plainly(each) if isinstance(each, Padded) else each for each in rest)
    return p.give(p.again(p.plainly(sorted_, range(len(sorted_.dims) - 1)), x, *rest), x.dims)


@pads(aten.bucketize.Tensor)
def bucketize(p: Padder, x: Padded, boundaries: Padded, *rest: Any) -> Padded:
    """Each element by itself."""
    _refuse(boundaries, 0)
    return p.give(p.again(x, boundaries, *rest), x.dims)


@pads(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar)
def isin(p: Padder, x: Padded, among: Any, *rest: Any) -> Padded:
    """Each element by itself."""
    if isinstance(among, Padded) and among.padded_in(range(len(among.dims))):
        raise Refused("it looks among what is padded", among.sizes)
    if is_symbolic(among):
        raise Refused("it takes a size as a number")
    return p.give(p.again(x, among, *rest), x.dims)


@pads(aten._prelu_kernel_backward.default)
def prelu_backward(p: Padder, grad: Padded, x: Padded, weight: Padded) -> Any:
    """Pointwise: autograd sums what is the weight's."""
    grad = p.varying(grad)
    x, weight = p.laid_out(x, grad.dims), p.laid_out(weight, grad.dims)
    return p.give_all(p.again(grad, x, weight), [grad.dims, grad.dims])


@pads(aten.glu.default)
def glu(p: Padder, x: Padded, dim: int = -1) -> Padded:
    """Halves of a dimension, pointwise."""
    d = dim % len(x.dims)
    _refuse(x, d)
    dims = list(x.dims)
    dims[d] = plain(p.out()[d])
    return p.give(p.again(x, dim), dims)
