"""Ops for which PyTorch infers other strides than eager's results have, and eager's strides.

Shape inference follows decompositions, or treats these as pointwise ops, where eager's CPU kernels
allocate their results in their own way. as_strided and the strides of results show the difference.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend.graph.torch_private import (
    compute_elementwise_output_strides,
    suggest_memory_format,
)

aten = torch.ops.aten


def _like_a_sum(args: Sequence[Any]) -> Tensor:
    """As pointwise ops of the first two operands."""
    return aten.add.Tensor(*args[:2])


def _like_the_first(args: Sequence[Any]) -> Tensor:
    x, y = args[:2]
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return torch.empty_like(x) if x.shape == shape else x.new_empty(shape)


def _row_major(args: Sequence[Any]) -> Tensor:
    x = next(arg for arg in args if isinstance(arg, Tensor))
    return x.new_empty(x.shape)


def _row_major_over_no_dims(args: Sequence[Any]) -> Tensor:
    over_none = len(args) > 1 and args[1] is not None and len(args[1]) == 0
    return _row_major(args) if over_none else args[0].new_empty(())


def _like_the_first_or_a_sum(args: Sequence[Any]) -> Tensor:
    like = _like_a_sum(args)
    return torch.empty_like(args[0]) if like.shape == args[0].shape else like


def _images(args: Sequence[Any]) -> Tensor:
    return torch.empty_like(args[0], memory_format=suggest_memory_format(args[0]))


def _unpooled_images(args: Sequence[Any]) -> Tensor:
    x, _, size = args
    result = x.new_empty((*x.shape[:-2], *size))
    return torch.empty_like(result, memory_format=suggest_memory_format(x))


def _indexed(args: Sequence[Any]) -> Tensor | None:
    """As a pointwise op of the tensor and its indices, which eager's kernel is; not for masks."""
    x, indices = args[:2]
    where = [dim for dim, index in enumerate(indices) if index is not None]
    if any(indices[dim].dtype in (torch.bool, torch.uint8) for dim in where):
        return None
    positions = torch.broadcast_tensors(*(indices[dim] for dim in where))
    first = where[0] if where == list(range(where[0], where[-1] + 1)) else 0
    kept = [dim for dim in range(x.dim()) if dim not in where]

    def joined(dims: Sequence[Any], indexed: Sequence[Any]) -> list[Any]:
        before, after = ([dims[n] for n in some] for some in (kept[:first], kept[first:]))
        return [*before, *indexed, *after]

    def empty(shape: Sequence[Any], strides: Sequence[Any]) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=x.dtype, device="meta")

    shape = joined(x.shape, positions[0].shape)
    source = empty(shape, joined(x.stride(), [0] * positions[0].dim()))
    operands = [
        empty(index.shape, index.stride()).reshape(joined([1] * x.dim(), index.shape)).expand(shape)
        for index in positions
    ]
    return empty(shape, compute_elementwise_output_strides(source, *operands))


_BY_KIND: dict[Callable[[Sequence[Any]], Tensor | None], str] = {
    _like_a_sum: "complex.default copysign.Tensor div.Tensor_mode floor_divide.default "
    "heaviside.default logaddexp.default logaddexp2.default logical_and.default "
    "logical_or.default logical_xor.default polar.default special_xlog1py.default xlogy.Tensor",
    _like_the_first: "binary_cross_entropy.default huber_loss.default",
    _row_major: "isin.Tensor_Scalar isin.Tensor_Tensor log_sigmoid_forward.default "
    "normal.Tensor_Tensor pow.Scalar",
    _row_major_over_no_dims: "all.dims any.dims",
    _indexed: "index.Tensor",
    _like_the_first_or_a_sum: "ldexp.Tensor",
    _images: "_batch_norm_with_update.default _batch_norm_with_update_functional.default "
    "native_batch_norm.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats "
    "_native_batch_norm_legit_functional.default _native_batch_norm_legit_no_training.default "
    "channel_shuffle.default native_channel_shuffle.default",
    _unpooled_images: "max_unpool2d.default",
}

# An op: makes, of its operands (fake or "meta"), a tensor with the strides of its (first) result;
# or None, where the inferred strides may be right.
LIKE: dict[Any, Callable[[Sequence[Any]], Tensor | None]] = {
    attrgetter(op)(aten): like for like, ops in _BY_KIND.items() for op in ops.split()
}


def with_eager_strides(op: Any, args: Any, result: Any) -> Any:
    """What shape inference gave for `op` of fake tensors, with the strides of eager's result."""
    return _restrided(op, args, result, lambda x, strides: x.new_empty_strided(x.shape, strides))


def _restrided(
    op: Any, args: Any, result: Any, copy: Callable[[Tensor, tuple[int, ...]], Tensor]
) -> Any:
    """`result`; its (first) tensor is copied where eager's has other strides."""
    if op not in LIKE:
        return result
    first = result if isinstance(result, Tensor) else result[0]
    like = LIKE[op](args)
    if like is None or like.shape != first.shape or like.stride() == first.stride():
        return result
    first = copy(first, like.stride())
    return first if isinstance(result, Tensor) else (first, *result[1:])


def _copy_in_order(x: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A dense copy whose dimensions are in the order of `strides`."""
    order = sorted(range(x.dim()), key=lambda dim: -strides[dim])
    inverse = [order.index(dim) for dim in range(x.dim())]
    return x.permute(order).clone(memory_format=torch.contiguous_format).permute(inverse)


def _restriding(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which computes `op`, followed by a copy where eager has other strides."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _restrided(op, args, function(*args, **kwargs), _copy_in_order)

    return run


class _Thread(threading.local):
    """Whether this thread is in the decomposition of an op to itself and a copy."""

    is_inside = False


_thread = _Thread()


def _to_itself(op: Any) -> Callable[..., Any]:
    restriding = _restriding(op, op)

    def run(*args: Any, **kwargs: Any) -> Any:
        if _thread.is_inside:
            return NotImplemented
        _thread.is_inside = True
        try:
            return restriding(*args, **kwargs)
        finally:
            _thread.is_inside = False

    return run


def restrided_decompositions(
    table: dict[Any, Callable[..., Any]],
) -> dict[Any, Callable[..., Any]]:
    """The decompositions of `table` whose results have other strides than eager's, corrected."""
    return {op: _restriding(op, how) for op, how in table.items() if op in LIKE}


def restrided_ops(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Decompositions of ops that are not in `table` to themselves, and a copy if strides differ."""
    return {op: _to_itself(op) for op in LIKE if op not in table}


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """F.one_hot, row-major as in eager; it decomposes to a comparison, which need not be."""
    return torch.nn.functional.one_hot(tensor, num_classes).contiguous()
