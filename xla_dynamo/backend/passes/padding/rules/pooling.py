"""Pooling over a padded batch, and over padded space where no window reaches beyond its end."""

from __future__ import annotations

from typing import Any

from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

from .products import alike


def _lead(x: Padded, space: int) -> range:
    return range(len(x.dims) - space)


def _refuse_space(x: Padded, space: int) -> None:
    dims = range(len(x.dims) - space, len(x.dims))
    if x.padded_in(dims):
        raise Refused("it pools over a padded dimension", [x.dims[d].size for d in dims])


def _pooled(space: int) -> Any:
    def rule(p: Padder, x: Padded, *rest: Any) -> Any:
        _refuse_space(x, space)
        made = p.again(x, *rest)
        dims = [[*x.dims[: len(x.dims) - space], *dims_of(out[-space:])] for out in p.outs()]
        several = isinstance(made.meta["val"], (tuple, list))
        return p.give_all(made, dims) if several else p.give(made, dims[0])

    return rule


def _gradient(space: int) -> Any:
    def rule(p: Padder, grad: Padded, x: Padded, *rest: Any) -> Padded:
        _refuse_space(x, space)
        for d in _lead(x, space):
            grad, x = alike(p, grad, x, d, d)
        others = [
            p.masked(p.plainly(each, _lead(x, space)), _lead(x, space), 0)
            if isinstance(each, Padded)
            else each
            for each in rest
        ]
        if any(isinstance(each, Padded) for each in rest):
            x, grad = (p.plainly(each, _lead(x, space)) for each in (x, grad))
        return p.give(p.again(grad, x, *others), x.dims)

    return rule


for _space in (1, 2, 3):
    for _kind in ("adaptive_avg_pool{}d", "_adaptive_avg_pool{}d", "avg_pool{}d"):
        pads(f"aten.{_kind.format(_space)}.default")(_pooled(_space))
        pads(f"aten.{_kind.format(_space)}_backward.default")(_gradient(_space))
    for _kind in ("max_pool{}d_with_indices", "adaptive_max_pool{}d"):
        pads(f"aten.{_kind.format(_space)}.default")(_pooled(_space))
        pads(f"aten.{_kind.format(_space)}_backward.default")(_gradient(_space))
