"""Random ops draw the numbers of the unpadded program: those of an element's position in it.

Numbers depend on an element's position among all. Where only the first dimension is padded,
positions are the same; elsewhere they are drawn in one row, and moved to where they belong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import rng_keys
from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.sizes import Refused, Size, is_symbolic, product

from . import attention
from .views import flat, reshape

aten = torch.ops.aten
# Draws of a shape: its position among the arguments. The others take a tensor of the shape.
_FACTORIES = {
    **dict.fromkeys((aten.rand.default, aten.randn.default), 0),
    aten.randint.default: 1,
    aten.randint.low: 2,
    aten.normal.float_float: 2,
}
_LIKE = (
    *(aten.rand_like.default, aten.randn_like.default, aten.uniform.default),
    *(aten.bernoulli.default, aten.bernoulli.p, aten.native_dropout.default),
    *(aten.normal_functional.default, aten.exponential.default, aten.log_normal.default),
    *(aten.cauchy.default, aten.geometric.default, aten.randint_like.default),
    *(aten.randint_like.low_dtype, aten.random.default, aten.random.to),
    *(getattr(aten.random, "from"), aten.rrelu_with_noise_functional.default),
)


def drawn(p: Padder, op: Any, index: int, key: Padded, *args: Any, **options: Any) -> Any:
    """The padded form of `rng_keys.call(op, index, key, *args)`."""
    sizes = [size for shape in p.outs() if shape is not None for size in shape]
    operands = [x for x in pytree.tree_leaves((args, options)) if isinstance(x, Padded)]
    if not any(map(is_symbolic, [*sizes, *(size for x in operands for size in x.sizes)])):
        made = p.emit(rng_keys.call, op, index, key, *args, **options)
        return _given(p, made, [[plain(n) for n in shape or ()] for shape in p.outs()])
    if str(op) == "xla_dynamo.dropout_attention.default":
        return attention.drops(p, (op, index, key), args[:4], args[4:])
    if p.target.random_bits != "threefry":
        raise Refused("the device's own generator draws other numbers for other shapes")
    if op in _FACTORIES:
        return _of_shape(p, op, index, key, list(args), options)
    if op in _LIKE and len(operands) == 1 and isinstance(args[0], Padded):
        return _of_tensor(p, op, index, key, args, options)
    raise Refused("it draws numbers that are not each of one element")


def _given(p: Padder, made: Any, dims: Any) -> Any:
    several = isinstance(made.meta["val"], (tuple, list))
    return p.give_all(made, dims) if several else p.give(made, dims[0])


def _of_shape(p: Padder, op: Any, index: int, key: Padded, args: list[Any], options: Any) -> Any:
    at, out = _FACTORIES[op], p.out()
    direct = _keeps_positions(out)
    total = product(out)
    args[at] = [p.padded(n) for n in out] if direct else [p.padded(total)]
    made = p.emit(rng_keys.call, op, index, key, *args, **options)
    if direct:
        return p.give(made, [plain(n) for n in out])
    return reshape(p, p.give(made, [plain(total)]), out)


def _keeps_positions(sizes: Any) -> bool:
    return not any(map(is_symbolic, sizes[1:]))


def _of_tensor(p: Padder, op: Any, index: int, key: Padded, args: Any, options: Any) -> Any:
    x: Padded = args[0]
    sizes: tuple[Size, ...] = x.sizes
    x = p.plainly(x) if _keeps_positions(sizes) else flat(p, x)
    made = p.emit(rng_keys.call, op, index, key, x, *args[1:], **options)
    dims = [plain(dim.size) for dim in x.dims]
    results = _given(p, made, [dims for _ in p.outs()])
    if _keeps_positions(sizes):
        return results
    if isinstance(results, tuple):
        return tuple(reshape(p, each, sizes) for each in results)
    return reshape(p, results, sizes)
