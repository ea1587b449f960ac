"""Strides of results as eager's kernels give them, where shape inference gives others.

Fake-tensor inference and eager's kernels disagree in two cases: a number beside a tensor, which the
kernels take as a 0-d tensor, and results that are allocated like the first operand. Strides of
dimensions of size one move no element, but decide the memory order of a broadcast, and which views
are possible.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions import eager_layout
from xla_dynamo.backend.graph import memory_layout
from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.values import Leaf, Meta, blank, meta_of

aten = torch.ops.aten

# Ops whose inferred result is row-major where eager keeps the operand's order, or the reverse.
_WRONG_ORDER = frozenset(
    {
        aten.native_dropout_backward.default,
        aten.nll_loss2d_forward.default,
        aten.reflection_pad3d.default,
        aten.replication_pad3d.default,
    }
)
# Eager's kernel is not run for tensors with more elements.
_MAX_ELEMENTS = 2**18


def mended(op: Op, args: Any, kwargs: Any, metas: Any) -> Any:
    """`metas`, of the results, with the strides that eager's kernel gives to tensors of zeros."""
    if torch.Tag.nondeterministic_seeded in op.func.tags:  # eager's generator is the user's
        return metas
    given = [x.value.meta for x in pytree.tree_leaves((args, kwargs)) if type(x) is Leaf]
    if not _in_question(op, given):
        return metas
    inferred, structure = pytree.tree_flatten(metas)
    if any(of.shape.numel() > _MAX_ELEMENTS for of in (*given, *inferred) if type(of) is Meta):
        return metas
    for number in (0, 1):
        try:
            made = pytree.tree_leaves(eager(op, args, kwargs, number))
        except Exception:
            continue  # zeros may be no divisors, and ones no valid indices
        both = zip(inferred, made, strict=True)
        strided = [meta_of(real) if _alike(of, real) else of for of, real in both]
        return pytree.tree_unflatten(strided, structure)
    return metas


def of_masked(x: Leaf, indices: Sequence[Leaf | None], picked: Meta) -> Meta:
    """`picked`, what one mask among `indices` picked of `x`, with the strides that eager gives."""
    of = x.value.meta
    (dim, mask), *others = [(n, index) for n, index in enumerate(indices) if index is not None]
    if of.strides is None or others:
        return picked
    selected = torch.empty(picked.shape[dim], dtype=torch.int64, device="meta")
    given = blank(of), [None] * dim + [selected] * mask.dim()
    return meta_of(eager_layout.with_eager_strides(aten.index.Tensor, given, blank(picked)))


def _in_question(op: Op, given: list[Meta]) -> bool:
    """Whether shape inference may give other strides than eager for such operands."""
    row_major = all(of.strides is None for of in given)
    if op.func in _WRONG_ORDER:
        return not row_major
    has_ones = any(1 in of.shape for of in given)
    return has_ones and (not row_major or op.func is aten.matmul.default)  # folded, and transposed


def _alike(of: Any, made: Any) -> bool:
    return type(of) is Meta and (made.shape, made.dtype) == (of.shape, of.dtype)


def eager(op: Op, args: Any, kwargs: Any, number: int = 0) -> Any:
    """The results of eager's kernel for CPU tensors of these shapes and strides.

    number: the value of every element.

    Raises:
        What eager PyTorch raises, also for shapes that no memory holds.
    """
    filled = functools.partial(_filled, number)
    args, kwargs = pytree.tree_map(filled, (list(args), dict(kwargs)))
    return op.func(*args, **kwargs)


def _filled(number: int, argument: Any) -> Any:
    if type(argument) is torch.device:
        return torch.device("cpu")
    if type(argument) is not Leaf:
        return argument
    of = argument.value.meta
    # Memory that is not touched, if there is as much.
    made = torch.zeros(of.shape, dtype=of.dtype, device="cpu")
    if of.strides is not None and 0 not in of.shape:
        reach = memory_layout.extent(of.shape, of.strides)
        made = torch.zeros(reach, dtype=of.dtype, device="cpu").as_strided(of.shape, of.strides)
    return made.fill_(number) if number else made
