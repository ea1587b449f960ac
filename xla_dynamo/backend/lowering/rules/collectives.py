"""Collectives among the replicas of a program, as the ops of StableHLO with explicit groups.

JAX has them behind axis names of its own meshes; here each is a primitive that lowers to one op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo as hlo
from jax.interpreters import mlir

from xla_dynamo.backend.lowering.registry import Unsupported, lower

ops = torch.ops.xla_dynamo
_Elements: Any = ir.DenseElementsAttr  # its types do not tell that it takes NumPy's arrays

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": hlo.add,
    "mul": hlo.multiply,
    "min": hlo.minimum,
    "max": hlo.maximum,
    "and": hlo.and_,
    "or": hlo.or_,
}


@lower(ops.all_reduce.default)
def all_reduce(
    inputs: Sequence[Array], kind: str, ranks: Sequence[int], group: int, after: Array | None = None
) -> tuple[Array, ...]:
    reduced = []
    for x in inputs:  # the pass `separate_all_reduces` leaves one
        reduction, x = _reduction(kind, x.dtype), _ordered(x, after, len(ranks))
        if _is_bitwise(reduction, x.dtype):
            reduced.append(_all_reduce_bits(x, reduction, ranks, group))
        else:
            reduced.append(
                _all_reduce.bind(x, reduction=reduction, ranks=tuple(ranks), group=group)
            )
    return tuple(reduced)


@lower(ops.all_gather.default)
def all_gather(
    x: Array, dim: int, ranks: Sequence[int], group: int, after: Array | None = None
) -> Array:
    x = _ordered(x, after, len(ranks))
    return _all_gather.bind(x, dim=dim % x.ndim, ranks=tuple(ranks), group=group)


@lower(ops.reduce_scatter.default)
def reduce_scatter(
    x: Array, kind: str, dim: int, ranks: Sequence[int], group: int, after: Array | None = None
) -> Array:
    _check_divides(x, dim, group)
    reduction, dim = _reduction(kind, x.dtype), dim % x.ndim
    x = _ordered(x, after, len(ranks))
    if _is_bitwise(reduction, x.dtype):
        return own_part(_all_reduce_bits(x, reduction, ranks, group), dim, ranks, group)
    return _reduce_scatter.bind(x, reduction=reduction, dim=dim, ranks=tuple(ranks), group=group)


@lower(ops.all_to_all.default)
def all_to_all(
    x: Array, split: int, concat: int, ranks: Sequence[int], group: int, after: Array | None = None
) -> Array:
    _check_divides(x, split, group)
    split, concat = split % x.ndim, concat % x.ndim
    x = _ordered(x, after, len(ranks))
    return _all_to_all.bind(x, split=split, concat=concat, ranks=tuple(ranks), group=group)


@lower(ops.collective_permute.default)
def collective_permute(x: Array, pairs: Sequence[int], after: Array | None = None) -> Array:
    x = _ordered(x, after, 1 << 30)
    return _collective_permute.bind(x, pairs=tuple(pairs))


@lower(ops.own_part.default)
def own_part(x: Array, dim: int, ranks: Sequence[int], group: int) -> Array:
    _check_divides(x, dim, group)
    place = np.zeros(len(ranks), np.int32)
    place[list(ranks)] = np.arange(len(ranks)) % group
    length = x.shape[dim] // group
    start = jnp.asarray(place)[_replica_id.bind(x)] * length
    return lax.dynamic_slice_in_dim(x, start, length, dim % x.ndim)


@lower("_c10d_functional._wrap_tensor_autograd.default")
def wrap_tensor(x: Array, *_: object) -> Array:
    """What PyTorch 2.13 puts around results of its collectives, for autograd."""
    return x


def _ordered(x: Array, after: Array | None, replicas: int) -> Array:
    """`x`, of which XLA does not know that it does not depend on `after`, and is no constant.

    Only its first element is written, in place: no replica has a number so large.
    """
    if after is None or not x.size or not after.size:
        return x
    replica = _replica_id.bind(x)
    other = (replica + (after.reshape(-1)[0] != 0)).astype(x.dtype)
    first = lax.slice(x, [0] * x.ndim, [1] * x.ndim)
    written = jnp.where(replica >= replicas, other, first)
    return lax.dynamic_update_slice(x, written, [0] * x.ndim)


def _reduction(kind: str, dtype: np.dtype) -> str:
    if kind in ("and", "or") and dtype.kind not in "biu":
        raise Unsupported(f"Floats have no bitwise {kind}.", "Reduce by sum, mul, min or max.")
    if dtype.kind == "b" and kind in ("sum", "mul"):  # true if any is, or all are, as in arithmetic
        return "or" if kind == "sum" else "and"
    return kind


def _is_bitwise(reduction: str, dtype: np.dtype) -> bool:
    """Whether it is a reduction that XLA has, among replicas, for booleans only."""
    return reduction in ("and", "or") and dtype.kind != "b"


def _all_reduce_bits(x: Array, reduction: str, ranks: Sequence[int], group: int) -> Array:
    every = _all_gather.bind(x[None], dim=0, ranks=tuple(ranks), group=group)
    return (lax.reduce_and if reduction == "and" else lax.reduce_or)(every, axes=(0,))


def _check_divides(x: Array, dim: int, parts: int) -> None:
    if x.shape[dim] % parts:
        raise Unsupported(
            f"Dimension {dim} of {list(x.shape)} has no {parts} equal parts, one for each replica.",
            "Pad it to a multiple of the number of replicas.",
        )


def _primitive(name: str, shape_of: Callable[..., Any], emit: Callable[..., Any]) -> Primitive:
    """A primitive of one result, whose shape is `shape_of(shape, **parameters)`."""
    made = Primitive(f"xla_dynamo_{name}")
    made.def_abstract_eval(
        lambda x, **parameters: x.update(shape=tuple(shape_of(x.shape, **parameters)))
    )
    mlir.register_lowering(made, emit)
    return made


def _groups(ranks: Sequence[int], group: int) -> Any:
    return _Elements.get(np.array(ranks, np.int64).reshape(-1, group))


def _i64(number: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _fill(region: Any, element: Any, reduction: str) -> None:
    """The computation of a reduction, on two scalars."""
    scalar = ir.RankedTensorType.get([], element)
    block = region.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        hlo.return_([_REDUCTIONS[reduction](*block.arguments)])


def _type(ctx: Any, x: Any) -> Any:
    return ir.RankedTensorType.get(ctx.avals_out[0].shape, x.type.element_type)


def _emit_all_reduce(ctx: Any, x: Any, *, reduction: str, ranks: Any, group: int) -> Any:
    made = hlo.AllReduceOp([x.type], [x], _groups(ranks, group))
    _fill(made.computation, x.type.element_type, reduction)
    return made.results


def _emit_all_gather(ctx: Any, x: Any, *, dim: int, ranks: Any, group: int) -> Any:
    made = hlo.AllGatherOp(
        [_type(ctx, x)], [x], all_gather_dim=_i64(dim), replica_groups=_groups(ranks, group)
    )
    return made.results


def _emit_reduce_scatter(
    ctx: Any, x: Any, *, reduction: str, dim: int, ranks: Any, group: int
) -> Any:
    made = hlo.ReduceScatterOp(
        _type(ctx, x), x, scatter_dimension=_i64(dim), replica_groups=_groups(ranks, group)
    )
    _fill(made.computation, x.type.element_type, reduction)
    return made.results


def _emit_all_to_all(ctx: Any, x: Any, *, split: int, concat: int, ranks: Any, group: int) -> Any:
    made = hlo.AllToAllOp(
        [x],
        split_dimension=_i64(split),
        concat_dimension=_i64(concat),
        split_count=_i64(group),
        replica_groups=_groups(ranks, group),
    )
    return made.results


def _emit_collective_permute(ctx: Any, x: Any, *, pairs: Any) -> Any:
    sent = _Elements.get(np.array(pairs, np.int64).reshape(-1, 2))
    return [hlo.CollectivePermuteOp(x, sent).result]


def _emit_replica_id(ctx: Any, x: Any) -> Any:
    return [hlo.ReplicaIdOp().result]


def _gathered(shape: Any, *, dim: int, group: int, **_: Any) -> list[int]:
    return [n * group if i == dim else n for i, n in enumerate(shape)]


def _scattered(shape: Any, *, dim: int, group: int, **_: Any) -> list[int]:
    return [n // group if i == dim else n for i, n in enumerate(shape)]


def _exchanged(shape: Any, *, split: int, concat: int, group: int, **_: Any) -> list[int]:
    return _gathered(_scattered(shape, dim=split, group=group), dim=concat, group=group)


_all_reduce = _primitive("all_reduce", lambda shape, **_: shape, _emit_all_reduce)
_all_gather = _primitive("all_gather", _gathered, _emit_all_gather)
_reduce_scatter = _primitive("reduce_scatter", _scattered, _emit_reduce_scatter)
_all_to_all = _primitive("all_to_all", _exchanged, _emit_all_to_all)
_collective_permute = _primitive(
    "collective_permute", lambda shape, **_: shape, _emit_collective_permute
)
_replica_id = Primitive("xla_dynamo_replica_id")  # takes an array only to make its type from
_replica_id.def_abstract_eval(lambda x: x.update(shape=(), dtype=np.dtype(np.uint32)))
mlir.register_lowering(_replica_id, _emit_replica_id)
