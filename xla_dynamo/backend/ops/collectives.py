"""Ops among the replicas of a program; lowering/rules/collectives.py lowers them.

Replicas are told by number, from 0. Groups of equal size are one list of replicas and the size:
`ranks=[0, 2, 1, 3], group=2` are the groups (0, 2) and (1, 3). Each replica takes part in its own.
What `after` gives, a result of another collective, has run before; where it is what the collective
takes itself, XLA has to take that for no constant. passes/lowering/order_collectives.py sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from xla_dynamo.errors import NotAvailable

from .registration import op


def _refuse(name: str) -> NoReturn:
    raise NotAvailable(
        f"{name} exchanges values among replicas, which only a program of XLA does; here it was "
        "called on tensors of the CPU. Move them to an xla device, or compile the function."
    )


@op(fake=lambda inputs, kind, ranks, group, after=None: [torch.empty_like(x) for x in inputs])
def all_reduce(
    inputs: Sequence[Tensor],
    kind: str,
    ranks: Sequence[int],
    group: int,
    after: Tensor | None = None,
) -> list[Tensor]:
    """Each input reduced over a group, elementwise; kind: sum, mul, min, max, and, or."""
    _refuse("all_reduce")


def _scaled(x: Tensor, dim: int, numerator: int, denominator: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = shape[dim] * numerator // denominator
    return x.new_empty(shape)


@op(fake=lambda x, dim, ranks, group, after=None: _scaled(x, dim, group, 1))
def all_gather(
    x: Tensor, dim: int, ranks: Sequence[int], group: int, after: Tensor | None = None
) -> Tensor:
    """The values of a group, concatenated along `dim` in the order of the group."""
    _refuse("all_gather")


@op(fake=lambda x, kind, dim, ranks, group, after=None: _scaled(x, dim, 1, group))
def reduce_scatter(
    x: Tensor, kind: str, dim: int, ranks: Sequence[int], group: int, after: Tensor | None = None
) -> Tensor:
    """`all_reduce`, of which each replica gets its part along `dim`."""
    _refuse("reduce_scatter")


@op(fake=lambda x, split, concat, ranks, group, after=None: _exchanged(x, split, concat, group))
def all_to_all(
    x: Tensor,
    split: int,
    concat: int,
    ranks: Sequence[int],
    group: int,
    after: Tensor | None = None,
) -> Tensor:
    """Part i along dimension `split` goes to replica i of the group, which concatenates what it
    gets along dimension `concat`."""
    _refuse("all_to_all")


def _exchanged(x: Tensor, split: int, concat: int, group: int) -> Tensor:
    return _scaled(_scaled(x, split, 1, group), concat, group, 1)


@op(fake=lambda x, pairs, after=None: torch.empty_like(x))
def collective_permute(x: Tensor, pairs: Sequence[int], after: Tensor | None = None) -> Tensor:
    """The value of the replica that sends to this one, or zeros; pairs: source, target, ..."""
    _refuse("collective_permute")


@op(fake=lambda x, dim, ranks, group: _scaled(x, dim, 1, group))
def own_part(x: Tensor, dim: int, ranks: Sequence[int], group: int) -> Tensor:
    """This replica's part of `x` along `dim`, of as many as its group has replicas."""
    _refuse("own_part")


# Those that wait for other replicas.
COMMUNICATING = frozenset(
    {
        torch.ops.xla_dynamo.all_reduce.default,
        torch.ops.xla_dynamo.all_gather.default,
        torch.ops.xla_dynamo.reduce_scatter.default,
        torch.ops.xla_dynamo.all_to_all.default,
        torch.ops.xla_dynamo.collective_permute.default,
    }
)
# Those that need a program of several replicas.
COLLECTIVES = COMMUNICATING | {torch.ops.xla_dynamo.own_part.default}
