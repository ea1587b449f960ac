"""Ops whose shape inference orders dimensions in memory otherwise than eager -> as eager does.

PyTorch infers these from what they are made of, or as it does for pointwise ops, where their
kernels for the CPU make results of their own. as_strided and result strides show the difference.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend.graph.torch_private import (
    compute_elementwise_output_strides,
    suggest_memory_format,
)

aten = torch.ops.aten


def _as_a_sum(args: Sequence[Any]) -> Tensor:
    """That of the first of two operands which decides, other than in what it is made of."""
    return aten.add.Tensor(*args[:2])


def _as_the_first(args: Sequence[Any]) -> Tensor:
    x, y = args[:2]
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return torch.empty_like(x) if x.shape == shape else x.new_empty(shape)


def _rows_first(args: Sequence[Any]) -> Tensor:
    x = next(arg for arg in args if isinstance(arg, Tensor))
    return x.new_empty(x.shape)


def _rows_first_over_no_dims(args: Sequence[Any]) -> Tensor:
    over_none = len(args) > 1 and args[1] is not None and len(args[1]) == 0
    return _rows_first(args) if over_none else args[0].new_empty(())


def _as_the_first_or_a_sum(args: Sequence[Any]) -> Tensor:
    like = _as_a_sum(args)
    return torch.empty_like(args[0]) if like.shape == args[0].shape else like


def _images(args: Sequence[Any]) -> Tensor:
    return torch.empty_like(args[0], memory_format=suggest_memory_format(args[0]))


def _unpooled_images(args: Sequence[Any]) -> Tensor:
    x, _, size = args
    blank = x.new_empty((*x.shape[:-2], *size))
    return torch.empty_like(blank, memory_format=suggest_memory_format(x))


def _of_picked(args: Sequence[Any]) -> Tensor | None:
    """Of the elements that eager picks in the order of both memory and indices; not for masks."""
    x, indices = args[:2]
    where = [dim for dim, index in enumerate(indices) if index is not None]
    if any(indices[dim].dtype in (torch.bool, torch.uint8) for dim in where):
        return None
    places = torch.broadcast_tensors(*(indices[dim] for dim in where))
    first = where[0] if where == list(range(where[0], where[-1] + 1)) else 0
    kept = [dim for dim in range(x.dim()) if dim not in where]

    def joined(of_kept: Sequence[Any], of_places: Sequence[Any]) -> list[Any]:
        return [
            *(of_kept[n] for n in kept[:first]),
            *of_places,
            *(of_kept[n] for n in kept[first:]),
        ]

    def blank(shape: Sequence[Any], strides: Sequence[Any]) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=x.dtype, device="meta")

    shape = joined(x.shape, places[0].shape)
    source = blank(shape, joined(x.stride(), [0] * places[0].dim()))
    pointers = [
        blank(place.shape, place.stride()).reshape(joined([1] * x.dim(), place.shape)).expand(shape)
        for place in places
    ]
    return blank(shape, compute_elementwise_output_strides(source, *pointers))


# op -> a tensor of the strides of its (first) result, of its operands, fake or on a device "meta";
# or None, where they may be as inferred.
LIKE: dict[Any, Callable[[Sequence[Any]], Tensor | None]] = {
    **dict.fromkeys(
        (
            aten.complex.default,
            aten.copysign.Tensor,
            aten.div.Tensor_mode,
            aten.floor_divide.default,
            aten.heaviside.default,
            aten.logaddexp.default,
            aten.logaddexp2.default,
            aten.logical_and.default,
            aten.logical_or.default,
            aten.logical_xor.default,
            aten.polar.default,
            aten.special_xlog1py.default,
            aten.xlogy.Tensor,
        ),
        _as_a_sum,
    ),
    **dict.fromkeys((aten.binary_cross_entropy.default, aten.huber_loss.default), _as_the_first),
    **dict.fromkeys(
        (
            aten.isin.Tensor_Scalar,
            aten.isin.Tensor_Tensor,
            aten.log_sigmoid_forward.default,
            aten.normal.Tensor_Tensor,
            aten.pow.Scalar,
        ),
        _rows_first,
    ),
    **dict.fromkeys((aten.all.dims, aten.any.dims), _rows_first_over_no_dims),
    aten.index.Tensor: _of_picked,
    aten.ldexp.Tensor: _as_the_first_or_a_sum,
    **dict.fromkeys(
        (
            aten._batch_norm_with_update.default,
            aten._batch_norm_with_update_functional.default,
            aten.native_batch_norm.default,
            aten._native_batch_norm_legit.default,
            aten._native_batch_norm_legit.no_stats,
            aten._native_batch_norm_legit_functional.default,
            aten._native_batch_norm_legit_no_training.default,
            aten.channel_shuffle.default,
            aten.native_channel_shuffle.default,
        ),
        _images,
    ),
    aten.max_unpool2d.default: _unpooled_images,
}


def mended(op: Any, args: Any, result: Any) -> Any:
    """What shape inference gave for `op` of fake tensors, with the strides of eager's result."""
    return _restrided(op, args, result, lambda x, strides: x.new_empty_strided(x.shape, strides))


def in_order(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """`decomposition` of `op`, whose (first) result has the strides of eager's."""

    @functools.wraps(decomposition)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _restrided(op, args, decomposition(*args, **kwargs), _copy_in_order)

    return run


def _restrided(
    op: Any, args: Any, result: Any, make: Callable[[Tensor, tuple[int, ...]], Tensor]
) -> Any:
    """`result`, or where its (first) tensor has other strides than eager's, with what is made."""
    if op not in LIKE:
        return result
    first = result if isinstance(result, Tensor) else result[0]
    like = LIKE[op](args)
    if like is None or like.shape != first.shape or like.stride() == first.stride():
        return result
    first = make(first, like.stride())
    return first if isinstance(result, Tensor) else (first, *result[1:])


class _Within(threading.local):
    """Whether this thread is in the decomposition of an op to itself."""

    kept = False


_within = _Within()


def _kept_in_order(op: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if _within.kept:
            return NotImplemented
        _within.kept = True
        try:
            return in_order(op, op)(*args, **kwargs)
        finally:
            _within.kept = False

    return run


def _copy_in_order(x: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A dense copy whose dimensions are in the order of `strides`."""
    order = sorted(range(x.dim()), key=lambda dim: -strides[dim])
    inverse = [order.index(dim) for dim in range(x.dim())]
    return x.permute(order).clone(memory_format=torch.contiguous_format).permute(inverse)


def decompositions_in_order(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Those of `table` whose results' strides PyTorch infers otherwise than eager has them."""
    return {op: in_order(op, how) for op, how in table.items() if op in LIKE}


def kept_in_order(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """For the ops that are not in `table`: to themselves, and a copy where the order is another."""
    return {op: _kept_in_order(op) for op in LIKE if op not in table}


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """F.one_hot, whose decomposition compares with classes: in the order of eager's result."""
    return torch.nn.functional.one_hot(tensor, num_classes).contiguous()
