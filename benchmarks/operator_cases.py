"""The ops that benchmarks/operators.py measures: a torch function beside a JAX one, as data.

Sizes are of models that people train, each of a millisecond or more on two CPU cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import torch
import torch.nn.functional as F
from jax import lax

from . import jax_operators as hand

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Index:
    """An input of integers: uniform below a bound, or every `step`-th number (offsets of bags)."""

    shape: Shape
    below: int = 0
    step: int = 0
    dtype: torch.dtype = torch.int64


@dataclass(frozen=True)
class Case:
    """An op on both sides.

    inputs: float32 inputs by their shapes, and integers.
    gradients: inputs whose gradients are measured instead of the result.
    with_forward: the forward is measured with the gradients: for ops whose gradient needs what the
        forward computes, which one side might otherwise have been given.
    same_integers: JAX is given integers of the same width, and not int32, which it prefers.
    """

    family: str
    name: str
    torch: Callable[..., Any]
    jax: Callable[..., Any]
    inputs: tuple[Shape | Index, ...]
    gradients: tuple[int, ...] = ()
    with_forward: bool = False
    same_integers: bool = False


def _row(
    name: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *inputs: Shape | Index,
    grad: tuple[tuple[int, ...], ...] = (),
    whole: tuple[int, ...] = (),
    forward: bool = True,
    same_integers: bool = False,
) -> Iterator[Case]:
    """The op; its gradients in each group of inputs of `grad`; itself and its gradients."""
    case = Case("", name, ours, theirs, inputs, same_integers=same_integers)
    if forward:
        yield case
    for group in grad:
        yield replace(case, gradients=group)
    if whole:
        yield replace(case, gradients=whole, with_forward=True)


def _conv(name: str, image: Shape, weight: Shape, *, both: bool = False, **settings: int):
    ours = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(image)]
    grad = ((0, 1),) if both else ((0,), (1,))
    theirs = hand.conv(**settings)
    return _row(name, partial(ours, **settings), theirs, image, weight, grad=grad)


def _conv_transpose(name: str, image: Shape, weight: Shape, **settings: int):
    ours = {3: F.conv_transpose1d, 4: F.conv_transpose2d}[len(image)]
    theirs = hand.conv_transpose(**settings)
    return _row(name, partial(ours, **settings), theirs, image, weight, grad=((0,), (1,)))


_IMAGE = (8, 64, 56, 56)
_LARGE = (8, 64, 112, 112)
_HEADS = (4, 8, 256, 64)
_ROWS, _COLUMNS = 512, 4096


def _convolutions() -> Iterator[Case]:
    yield from _conv("3x3", (4, 64, 56, 56), (64, 64, 3, 3), padding=1)
    yield from _conv("1x1", _IMAGE, (128, 64, 1, 1))
    yield from _conv("7x7, stride 2", (4, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    yield from _conv("3x3, stride 2", _IMAGE, (64, 64, 3, 3), stride=2, padding=1)
    yield from _conv("3x3, dilation 2", (4, 64, 28, 28), (64, 64, 3, 3), padding=2, dilation=2)
    yield from _conv("depthwise 3x3", (4, 64, 28, 28), (64, 1, 3, 3), padding=1, groups=64)
    yield from _conv("3x3, 32 groups", (2, 64, 14, 14), (64, 2, 3, 3), padding=1, groups=32)
    yield from _conv("512 channels on 7x7", (8, 512, 7, 7), (512, 512, 3, 3), padding=1)
    yield from _conv("512 channels on 4x4", (8, 512, 4, 4), (512, 512, 3, 3), padding=1)
    yield from _conv("1-d, width 5", (8, 128, 512), (128, 128, 5), padding=2)
    yield from _conv("3-d, 3x3x3", (2, 16, 16, 28, 28), (32, 16, 3, 3, 3), padding=1)
    yield from _conv_transpose(
        "transposed 4x4, stride 2", (4, 64, 28, 28), (64, 32, 4, 4), stride=2, padding=1
    )
    yield from _conv_transpose(
        "transposed 1-d, stride 2", (8, 128, 256), (128, 64, 4), stride=2, padding=1
    )


def _products() -> Iterator[Case]:
    square = (512, 512)
    yield from _row("mm", torch.mm, jnp.matmul, square, square, grad=((0, 1),))
    yield from _row("addmm", torch.addmm, lambda b, x, y: x @ y + b, (512,), square, square)
    batches = (16, 256, 256)
    yield from _row("bmm", torch.bmm, jnp.matmul, batches, batches, grad=((0, 1),))
    yield from _row(
        *("linear", F.linear, hand.linear, (1024, 512), (1024, 512), (1024,)), grad=((0, 1, 2),)
    )
    yield from _row(
        *("linear on 3-d", F.linear, hand.linear, (8, 256, 512), (512, 512), (512,)),
        grad=((0, 1, 2),),
    )
    yield from _row("matmul 4-d with 2-d", torch.matmul, jnp.matmul, (8, 4, 128, 256), (256, 256))
    equation = "bthd,bshd->bhts"
    yield from _row(
        f"einsum {equation}",
        partial(torch.einsum, equation),
        partial(jnp.einsum, equation),
        *((4, 256, 8, 64), (4, 256, 8, 64)),
        grad=((0, 1),),
    )
    yield from _row("mv", torch.mv, jnp.matmul, (4096, 2048), (2048,))


def _attentions() -> Iterator[Case]:
    attend = F.scaled_dot_product_attention
    qkv = (_HEADS,) * 3
    causal = partial(attend, is_causal=True)
    grouped = partial(attend, enable_gqa=True)
    shared = (4, 2, 256, 64)
    yield from _row("full", attend, hand.attention, *qkv, whole=(0, 1, 2))
    yield from _row("causal", causal, hand.causal_attention, *qkv, whole=(0, 1, 2))
    yield from _row("additive mask", attend, hand.attention, *qkv, (256, 256), whole=(0, 1, 2))
    yield from _row(
        *("grouped queries", grouped, hand.grouped_attention, _HEADS, shared, shared),
        whole=(0, 1, 2),
    )


def _norms() -> Iterator[Case]:
    tokens = (16, 512, 768)
    vector = (768,)

    def frozen(x: Any, weight: Any, bias: Any, mean: Any, scale: Any) -> Any:
        return F.batch_norm(x, mean, scale.square(), weight, bias)

    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return F.layer_norm(x, vector, weight, bias)

    yield from _row("layer", layer, hand.layer_norm, tokens, vector, vector, whole=(0, 1, 2))
    yield from _row(
        "rms",
        lambda x, weight: F.rms_norm(x, vector, weight, 1e-5),
        hand.rms_norm,
        *(tokens, vector),
        whole=(0, 1),
    )
    yield from _row(
        "batch, training",
        lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, True),
        hand.batch_norm,
        *(_LARGE, (64,), (64,)),
        whole=(0, 1, 2),
    )
    yield from _row("batch, inference", frozen, hand.frozen_batch_norm, _LARGE, *((64,),) * 4)
    yield from _row(
        "group, 8",
        lambda x, weight, bias: F.group_norm(x, 8, weight, bias),
        partial(hand.group_norm, 8),
        *(_LARGE, (64,), (64,)),
        whole=(0, 1, 2),
    )
    yield from _row("instance", F.instance_norm, hand.instance_norm, _LARGE, whole=(0,))


def _poolings() -> Iterator[Case]:
    x = _LARGE
    yield from _row(
        *("max 3x3, stride 2", partial(F.max_pool2d, kernel_size=3, stride=2, padding=1)),
        *(partial(hand.max_pool, 3, 2, 1), x),
        whole=(0,),
    )
    yield from _row(
        *("max 2x2", partial(F.max_pool2d, kernel_size=2), partial(hand.max_pool, 2, 2, 0), x),
        whole=(0,),
    )
    yield from _row(
        *("average 2x2", partial(F.avg_pool2d, kernel_size=2), partial(hand.avg_pool, 2, 2, 0), x),
        grad=((0,),),
    )
    yield from _row(
        *("average 3x3, stride 1", partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1)),
        *(partial(hand.avg_pool, 3, 1, 1), x),
        grad=((0,),),
    )
    for name, size, shape in (
        ("adaptive average to 1x1", 1, x),
        ("adaptive average to 7x7", 7, x),
        ("adaptive average to 7x7, uneven", 7, (8, 256, 30, 30)),
    ):
        ours, theirs = partial(F.adaptive_avg_pool2d, output_size=size), hand.adaptive_avg_pool
        yield from _row(name, ours, partial(theirs, size), shape, grad=((0,),))
    yield from _row(
        *("max, 1-d", partial(F.max_pool1d, kernel_size=2), partial(hand.max_pool, 2, 2, 0)),
        (16, 128, 2048),
    )


def _embeddings() -> Iterator[Case]:
    table, words = (20_000, 256), Index((64, 512), 20_000)
    yield from _row("table", F.embedding, hand.embedding, words, table, grad=((1,),))
    yield from _row(
        "bags, sum",
        lambda indices, offsets, weight: F.embedding_bag(indices, weight, offsets, mode="sum"),
        hand.embedding_bag,
        *(Index((32_768,), 20_000), Index((1024,), step=32), table),
        grad=((2,),),
    )


def _cross_entropies() -> Iterator[Case]:
    smooth = partial(F.cross_entropy, label_smoothing=0.1)
    logits = (2048, 4096)
    labels = Index((2048,), 4096)
    plane = ((8, 21, 128, 128), Index((8, 128, 128), 21))
    yield from _row("classes", F.cross_entropy, hand.cross_entropy, logits, labels, whole=(0,))
    yield from _row("pixels", F.cross_entropy, hand.cross_entropy, *plane, whole=(0,))
    yield from _row(
        *("smoothed", smooth, partial(hand.smoothed_cross_entropy, 0.1), logits, labels),
        whole=(0,),
    )


def _sorts() -> Iterator[Case]:
    x = (256, 1024)
    yield from _row("sort", torch.sort, hand.sort, x, whole=(0,))
    yield from _row("sort, stable", partial(torch.sort, stable=True), hand.sort, x)
    yield from _row("argsort", torch.argsort, jnp.argsort, x)
    yield from _row(
        "argsort, descending",
        partial(torch.argsort, descending=True),
        partial(jnp.argsort, descending=True),
        x,
    )
    top = partial(lax.top_k, k=50)
    yield from _row("topk 50", partial(torch.topk, k=50), top, (64, 32_768), whole=(0,))
    yield from _row("topk 1", partial(torch.topk, k=1), partial(lax.top_k, k=1), (256, 8192))
    yield from _row(
        "kthvalue", lambda x: torch.kthvalue(x, 10).values, partial(hand.kth_value, 10), x
    )
    yield from _row("sort of one axis", torch.sort, hand.sort, (200_000,))


def _indexings() -> Iterator[Case]:
    x, places = (_ROWS, _COLUMNS), Index((_ROWS, 2048), _COLUMNS)
    rows = Index((4096,), 10_000)
    table, updates = (10_000, 512), (4096, 512)

    def gather(x: Any, index: Any) -> Any:
        return torch.gather(x, 1, index)

    def gather_by_hand(x: Any, index: Any) -> Any:
        return jnp.take_along_axis(x, index, 1)

    yield from _row("gather", gather, gather_by_hand, x, places, grad=((0,),))
    yield from _row(
        "gather, int64 in JAX too", gather, gather_by_hand, x, places, same_integers=True
    )
    yield from _row(
        "scatter_add",
        lambda x, index, source: x.scatter_add(1, index, source),
        hand.scatter_add,
        *(x, places, (_ROWS, 2048)),
        grad=((2,),),
    )
    yield from _row(
        "index_select",
        lambda x, index: x.index_select(0, index),
        lambda x, index: jnp.take(x, index, axis=0),
        *(table, Index((8192,), 10_000)),
        grad=((0,),),
    )
    yield from _row(
        "index_select, columns",
        lambda x, index: x.index_select(1, index),
        lambda x, index: jnp.take(x, index, axis=1),
        *(x, Index((2048,), _COLUMNS)),
    )
    yield from _row(
        "index_add",
        lambda x, index, source: x.index_add(0, index, source),
        lambda x, index, source: x.at[index].add(source),
        *(table, rows, updates),
    )
    yield from _row(
        "index_put, accumulate",
        lambda x, i, j, source: x.index_put((i, j), source, accumulate=True),
        lambda x, i, j, source: x.at[i, j].add(source),
        *(x, Index((500_000,), _ROWS), Index((500_000,), _COLUMNS), (500_000,)),
    )

    def at(x: Any, i: Any, j: Any) -> Any:
        return x[i, j]

    pairs = (Index((500_000,), _ROWS), Index((500_000,), _COLUMNS))
    yield from _row("x[i, j]", at, at, x, *pairs, grad=((0,),))
    yield from _row("x[i, j], int64 in JAX too", at, at, x, *pairs, same_integers=True)
    narrow = [replace(index, dtype=torch.int32) for index in pairs]
    yield from _row("x[i, j], int32 here too", at, at, x, *narrow)


def _scans() -> Iterator[Case]:
    x = (512, 2048)
    along = {"dim": 1}
    yield from _row(
        *("cumsum", partial(torch.cumsum, **along), partial(jnp.cumsum, axis=1), x), grad=((0,),)
    )
    columns = partial(torch.cumsum, dim=0), partial(jnp.cumsum, axis=0)
    yield from _row("cumsum, first axis", *columns, (2048, 512), grad=((0,),))
    yield from _row("cumprod", partial(torch.cumprod, **along), partial(jnp.cumprod, axis=1), x)
    logs = partial(torch.logcumsumexp, **along), hand.cumulative_log_sum
    yield from _row("logcumsumexp", *logs, x, whole=(0,))
    yield from _row("cummax", partial(torch.cummax, **along), hand.cummax, x)


def _interpolations() -> Iterator[Case]:
    x = (8, 64, 56, 56)
    to = partial(partial, F.interpolate)
    yield from _row(*("nearest x2", to(scale_factor=2), partial(hand.nearest, 2), x), grad=((0,),))
    yield from _row(
        "nearest, centers, to 100",
        to(size=100, mode="nearest-exact"),
        partial(hand.resize, 100, "nearest", False),
        x,
        grad=((0,),),
    )
    linear = to(scale_factor=2, mode="bilinear")
    yield from _row(
        "bilinear x2", linear, partial(hand.resize, 112, "linear", False), x, grad=((0,),)
    )
    aligned = to(size=112, mode="bilinear", align_corners=True)
    yield from _row(
        "bilinear, corners", aligned, partial(hand.resize_aligned, 112), x, grad=((0,),)
    )
    cubic = to(scale_factor=2, mode="bicubic")
    yield from _row("bicubic x2", cubic, partial(hand.resize_cubic, 112), x, grad=((0,),))
    smooth = to(size=28, mode="bilinear", antialias=True)
    yield from _row(
        *("antialiased to half", smooth, partial(hand.resize, 28, "linear", True)),
        (8, 64, 56, 56),
        grad=((0,),),
    )


_FAMILIES = {
    "convolution": _convolutions,
    "matrix products": _products,
    "attention": _attentions,
    "normalization": _norms,
    "pooling": _poolings,
    "embedding": _embeddings,
    "cross-entropy": _cross_entropies,
    "sorting": _sorts,
    "indexing": _indexings,
    "scans": _scans,
    "interpolation": _interpolations,
}


def cases() -> list[Case]:
    """Every case, family by family."""
    return [replace(case, family=name) for name, make in _FAMILIES.items() for case in make()]
