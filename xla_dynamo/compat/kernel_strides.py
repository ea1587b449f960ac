"""The strides that shape inference gives to results -> those that eager's kernels give.

Numbers are 0-d tensors to eager's kernels, and results that these allocate as the first operand are
in its order; PyTorch's inference takes all that has its elements in a row for row-major. Strides of
dimensions of one move no element, but decide the order of a broadcast, and which views there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .ops import Op
from .values import Leaf, Meta, meta_of

aten = torch.ops.aten

# Whose inference makes rows of what eager has in its operand's order, or the reverse.
_ASKED = frozenset(
    {
        aten.native_dropout_backward.default,
        aten.nll_loss2d_forward.default,
        aten.reflection_pad3d.default,
        aten.replication_pad3d.default,
    }
)
# Elements of tensors, above which eager's kernel is not asked.
_FEW = 2**18


def mended(op: Op, args: Any, kwargs: Any, metas: Any) -> Any:
    """`metas`, of the results, with the strides that eager's kernel gives to tensors of zeros."""
    if torch.Tag.nondeterministic_seeded in op.func.tags:  # eager's generator is the user's
        return metas
    given = [x.value.meta for x in pytree.tree_leaves((args, kwargs)) if type(x) is Leaf]
    if not _in_question(op, given):
        return metas
    inferred, structure = pytree.tree_flatten(metas)
    if any(of.shape.numel() > _FEW for of in (*given, *inferred) if type(of) is Meta):
        return metas
    for values in _values(args, kwargs):
        try:
            made = pytree.tree_leaves(op.func(*values[0], **values[1]))
        except Exception:
            continue  # integers are not divided by zero, nor are all places those of an element
        both = zip(inferred, made, strict=True)
        return pytree.tree_unflatten([_restrided(*pair) for pair in both], structure)
    return metas


def of_masked(x: Leaf, indices: Sequence[Leaf | None], picked: Meta) -> Meta:
    """`picked`, what one mask among `indices` picked of `x`, with the strides that eager gives."""
    of = x.value.meta
    (dim, mask), *others = [(n, index) for n, index in enumerate(indices) if index is not None]
    if of.strides is None or others or of.shape.numel() > _FEW:
        return picked
    places = torch.zeros(picked.shape[dim], dtype=torch.int64)
    return meta_of(aten.index.Tensor(real(x), [None] * dim + [places] * mask.dim()))


def _in_question(op: Op, given: list[Meta]) -> bool:
    """Whether inference may be wrong for operands like these."""
    row_major = all(of.strides is None for of in given)
    if op.func in _ASKED:
        return not row_major
    has_ones = any(1 in of.shape for of in given)
    return has_ones and (not row_major or op.func is aten.matmul.default)  # folded, and transposed


def _restrided(of: Any, made: Any) -> Any:
    if type(of) is not Meta or made.shape != of.shape or made.dtype != of.dtype:
        return of
    return meta_of(made)


def _values(args: Any, kwargs: Any) -> Iterator[Any]:
    for number in (0, 1):
        yield pytree.tree_map(lambda x, number=number: real(x, number), (list(args), dict(kwargs)))


def real(argument: Any, number: int = 0) -> Any:
    """A tensor of `number` on the CPU with the strides of a lazy one; other arguments as they are.

    Raises:
        RuntimeError: no memory is as large.
    """
    if type(argument) is torch.device:
        return torch.device("cpu")
    if type(argument) is not Leaf:
        return argument
    of = argument.value.meta
    made = torch.zeros(of.shape, dtype=of.dtype)  # memory that is not touched, if there is as much
    if of.strides is not None and 0 not in of.shape:
        reach = sum((n - 1) * step for n, step in zip(of.shape, of.strides, strict=True))
        made = torch.zeros(1 + reach, dtype=of.dtype).as_strided(of.shape, of.strides)
    return made.fill_(number) if number else made
