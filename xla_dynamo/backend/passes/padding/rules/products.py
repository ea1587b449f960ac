"""Products of matrices: both operands are zero where the contracted dimension is padding.

Both, because the other's padding may hold nan. With zeros, contracted layouts must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import Dim, plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, is_symbolic

aten = torch.ops.aten


def contracted(p: Padder, a: Padded, b: Padded, d: int, e: int) -> tuple[Padded, Padded]:
    """Operands whose dimensions `d` and `e` are multiplied and summed up."""
    a, b = alike(p, a, b, d, e)
    return p.masked(a, [d], 0), p.masked(b, [e], 0)


def alike(p: Padder, a: Padded, b: Padded, d: int, e: int) -> tuple[Padded, Padded]:
    """The two with one layout for dimension `d` of one and `e` of the other."""
    d, e = d % len(a.dims), e % len(b.dims)
    dim, other = a.dims[d], b.dims[e]
    if dim.factors is None:
        dim = other
    elif dim != other and not dim.is_plain:
        dim = plain(dim.size)
    return p.moved(a, d, dim), p.moved(b, e, dim)


@pads(aten.mm.default)
def mm(p: Padder, a: Padded, b: Padded) -> Padded:
    """[m, k] by [k, n]."""
    a, b = contracted(p, a, b, 1, 0)
    return p.give(p.again(a, b), [a.dims[0], b.dims[1]])


@pads(aten.bmm.default)
def bmm(p: Padder, a: Padded, b: Padded) -> Padded:
    """[b, m, k] by [b, k, n]."""
    a, b = contracted(p, a, b, 2, 1)
    a, b = alike(p, a, b, 0, 0)
    return p.give(p.again(a, b), [a.dims[0], a.dims[1], b.dims[2]])


@pads(aten.mv.default)
def mv(p: Padder, a: Padded, b: Padded) -> Padded:
    """[m, k] by [k]."""
    a, b = contracted(p, a, b, 1, 0)
    return p.give(p.again(a, b), [a.dims[0]])


@pads(aten.dot.default, aten.vdot.default)
def dot(p: Padder, a: Padded, b: Padded) -> Padded:
    """[k] by [k]."""
    a, b = contracted(p, a, b, 0, 0)
    return p.give(p.again(a, b), [])


@pads(aten.addmm.default, aten.addmv.default, aten.baddbmm.default, aten.addr.default)
def added(p: Padder, x: Padded, a: Padded, b: Padded, beta: Any = 1, alpha: Any = 1) -> Padded:
    """A product, and something that broadcasts to it."""
    if is_symbolic(beta) or is_symbolic(alpha):
        raise Refused("it takes a size as a number")
    dims: Sequence[Dim]
    if p.node.target is aten.addr.default:
        dims = [a.dims[0], b.dims[0]]
    else:
        a, b = contracted(p, a, b, -1, -2 if len(b.dims) > 1 else 0)
        if len(a.dims) == 3:
            a, b = alike(p, a, b, 0, 0)
        dims = [*a.dims[:-1], *b.dims[len(b.dims) - 1 :]] if len(b.dims) > 1 else a.dims[:-1]
    dims = [dim.plainly() if dim.factors is None else dim for dim in dims]
    x = p.laid_out(x, dims)
    return p.give(p.again(x, a, b, beta, alpha), dims)


@pads(aten.linear.default)
def linear(p: Padder, x: Padded, weight: Padded, bias: Padded | None) -> Padded:
    """[..., k] by [n, k]."""
    x, weight = contracted(p, x, weight, -1, -1)
    if bias is not None and bias.dims[0] != weight.dims[0]:
        raise Refused("a bias is padded in another way than its weight")
    return p.give(p.again(x, weight, bias), [*x.dims[:-1], *weight.dims[:-1]])
