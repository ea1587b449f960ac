"""Rows of a table by index, and the sums that are their gradients."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

from .products import alike

aten = torch.ops.aten


@pads(aten.embedding.default)
def embedding(p: Padder, weight: Padded, index: Padded, *rest: Any) -> Padded:
    """An index in the padding finds some row, or none."""
    weight = p.plainly(weight, [0])
    return p.give(
        p.again(weight, p.masked(index, range(len(index.dims)), 0), *rest),
        [*index.dims, weight.dims[1]],
    )


@pads(aten.embedding_dense_backward.default)
def embedding_backward(
    p: Padder, grad: Padded, index: Padded, rows: Any, padding: Any, by_frequency: bool
) -> Padded:
    """What is padding adds 0 to row 0; by frequency it would count."""
    rank = len(index.dims)
    for d in range(rank):
        grad, index = alike(p, grad, index, d, d)
    if by_frequency and index.padded_in(range(rank)):
        raise Refused("the gradient is scaled by how often a row comes")
    grad, index = p.masked(grad, range(rank), 0), p.masked(index, range(rank), 0)
    made = p.again(grad, index, p.padded(rows), padding, by_frequency)
    return p.give(made, [*dims_of(p.out()[:1]), grad.dims[-1]])
