"""Pooling over a padded batch and padded space.

What is behind the elements counts as the padding of the pooling itself: -inf for a maximum, 0 for a
mean. Positions of maxima count the elements, row by row; in a padded row they have to be changed.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, product

aten = torch.ops.aten


def _space(x: Padded, count: int) -> list[int]:
    return list(range(len(x.dims) - count, len(x.dims)))


def _lead(x: Padded, count: int) -> range:
    return range(len(x.dims) - count)


def _refuse_space(x: Padded, count: int) -> None:
    if x.padded_in(_space(x, count)):
        raise Refused("it pools over a padded dimension", x.sizes[-count:])


def _result(p: Padder, made: Any, x: Padded, count: int, out: Sequence[Any]) -> Padded:
    """The windows of elements, which come first."""
    for d in _space(x, count):
        if made.meta["val"].shape[d] > p.padded(out[d]):
            made = p.emit(aten.slice.Tensor, made, d, 0, p.padded(out[d]))
    return p.give(made, [*x.dims[: len(x.dims) - count], *map(plain, out[-count:])])


def _adaptive(count: int) -> Any:
    def rule(p: Padder, x: Padded, *rest: Any) -> Any:
        _refuse_space(x, count)
        made, outs = p.again(x, *rest), p.outs()
        if not isinstance(made.meta["val"], (tuple, list)):
            return _result(p, made, x, count, outs[0])
        lead = x.dims[: len(x.dims) - count]
        return p.give_all(made, [[*lead, *map(plain, out[-count:])] for out in outs])

    return rule


def _adaptive_gradient(count: int) -> Any:
    def rule(p: Padder, grad: Padded, x: Padded, *rest: Any) -> Padded:
        _refuse_space(x, count)
        lead = _lead(x, count)
        x, grad = p.plainly(x, lead), p.plainly(grad, lead)
        others = [
            p.masked(p.plainly(each, lead), lead, 0) if isinstance(each, Padded) else each
            for each in rest
        ]
        return p.give(p.again(grad, x, *others), x.dims)

    return rule


def _maximum(count: int) -> Any:
    def rule(p: Padder, x: Padded, *rest: Any) -> Any:
        space = _space(x, count)
        x = p.masked(p.plainly(x), space, "lowest")
        made, outs = p.again(x, *rest), p.outs()
        both = (p.emit(operator.getitem, made, i) for i in (0, 1))
        values, at = (_result(p, each, x, count, out) for each, out in zip(both, outs, strict=True))
        padded = [x.value.shape[d] for d in space]
        return values, _renumbered(p, at, padded, [x.dims[d].size for d in space])

    return rule


def _renumbered(p: Padder, at: Padded, old: Sequence[Any], new: Sequence[Any]) -> Padded:
    """Positions in rows of the sizes `old` as positions in rows of the sizes `new`."""
    if list(old[1:]) == list(new[1:]):
        return at
    index: Any = at
    found: Any = None
    for d in reversed(range(len(old))):
        digit = index
        if d:
            size = p.runtime(old[d])
            op = aten.remainder.Scalar if isinstance(size, int) else aten.remainder.Tensor
            digit = p.emit(op, index, size)
            index = p.emit(aten.floor_divide.default, index, size)
        stride = p.runtime(product(new[d + 1 :]))
        term = digit if stride == 1 else p.emit(aten.mul.Tensor, digit, stride)
        found = term if found is None else p.emit(aten.add.Tensor, found, term)
    return p.give(found, at.dims)


def _maximum_gradient(count: int) -> Any:
    def rule(p: Padder, grad: Padded, x: Padded, *rest: Any) -> Padded:
        *options, at = rest
        x, grad, at = p.plainly(x), p.plainly(grad), p.plainly(at)
        everywhere = range(len(grad.dims))
        space = _space(x, count)
        padded = [x.value.shape[d] for d in space]
        at = _renumbered(p, p.masked(at, everywhere, 0), [x.dims[d].size for d in space], padded)
        grad, x = p.masked(grad, everywhere, 0), p.masked(x, space, "lowest")
        wanted = p.again(grad, x, *options, at)
        return p.give(wanted, x.dims)

    return rule


def _check_mean(x: Padded, count: int, rest: Sequence[Any]) -> None:
    """Only where windows have as many elements at the end as elsewhere."""
    _, _, padding, ceil, with_padding, _ = rest
    if x.padded_in(_space(x, count)) and (ceil or (any(padding) and not with_padding)):
        raise Refused("windows at the end have fewer elements", x.sizes[-count:])


def _mean(count: int) -> Any:
    def rule(p: Padder, x: Padded, *rest: Any) -> Padded:
        _check_mean(x, count, rest)
        x = p.masked(p.plainly(x), _space(x, count), 0)
        return _result(p, p.again(x, *rest), x, count, p.out())

    return rule


def _mean_gradient(count: int) -> Any:
    def rule(p: Padder, grad: Padded, x: Padded, *rest: Any) -> Padded:
        _check_mean(x, count, rest)
        x, grad = p.plainly(x), p.plainly(grad)
        grad = p.masked(grad, _space(grad, count), 0)
        return p.give(p.again(grad, x, *rest), x.dims)

    return rule


for _count in (1, 2, 3):
    for _name in (f"adaptive_avg_pool{_count}d", f"_adaptive_avg_pool{_count}d"):
        pads(f"aten.{_name}.default")(_adaptive(_count))
        pads(f"aten.{_name}_backward.default")(_adaptive_gradient(_count))
    pads(f"aten.adaptive_max_pool{_count}d.default")(_adaptive(_count))
    pads(f"aten.adaptive_max_pool{_count}d_backward.default")(_adaptive_gradient(_count))
    pads(f"aten.max_pool{_count}d_with_indices.default")(_maximum(_count))
    pads(f"aten.max_pool{_count}d_with_indices_backward.default")(_maximum_gradient(_count))
    if _count > 1:  # of one dimension, it takes no divisor
        pads(f"aten.avg_pool{_count}d.default")(_mean(_count))
        pads(f"aten.avg_pool{_count}d_backward.default")(_mean_gradient(_count))
