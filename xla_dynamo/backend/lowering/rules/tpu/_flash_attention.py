"""Attention as kernels for a TPU, in Pallas: blocks of scores are computed, and never in memory.

Forward gives the output and the log-sum-exp of each row of scores; backward computes the weights
from it again. Heads of queries that share a head of keys read it where it is. Rows without a key to
attend to give zeros. Lengths are padded to blocks, and what is padded is masked.

`interpret` runs the kernels in Pallas's interpreter, on any device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from xla_dynamo.lazily import lazily

from . import _attention_kernels as kernels
from ._attention_kernels import LANES, Call, padded, quotient, rest, seen

if TYPE_CHECKING:
    from jax.experimental import pallas
    from jax.experimental.pallas import tpu
else:  # a third of a second, which programs without it need not take
    pallas = lazily("jax.experimental.pallas", globals())
    tpu = lazily("jax.experimental.pallas.tpu", globals())


def forward(
    call: Call, q: Array, k: Array, v: Array, mask: Array | None, seed: Array | None = None
) -> tuple[Array, Array]:
    """The output, like `q`, and the log-sum-exp of scores, float32 [batch, heads, queries].

    seed: two words, of a call with dropout.
    """
    row, _ = call.block
    spec = _Specs(call, lambda b, h, i, j: (b, h, i, seen(call, i, j)))
    out = jax.ShapeDtypeStruct(
        (call.batch, call.heads, padded(call.queries), call.features), q.dtype
    )
    lse = jax.ShapeDtypeStruct((call.batch, call.heads, 1, padded(call.queries)), np.float32)
    kernel = pallas.pallas_call(
        functools.partial(kernels.forward, call),
        grid=(call.batch, call.heads, *call.blocks),
        in_specs=[spec.q, spec.k, spec.k, *spec.optional],
        out_specs=[spec.q, spec.row],
        out_shape=[out, lse],
        scratch_shapes=[
            _memory(row, call.features),
            _memory(row, LANES),
            _memory(row, LANES),
        ],
        compiler_params=_sequential(),
        cost_estimate=_cost(call, 2, q),
        interpret=call.interpret,
        name="attention",
    )
    out, lse = kernel(_rows(q), _rows(k), _rows(v), *_optional(mask, seed))
    return out[:, :, : call.queries], lse[:, :, 0, : call.queries]


def backward(
    call: Call,
    grad: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    mask: Array | None,
    seed: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v."""
    along = jnp.sum(grad.astype(np.float32) * out.astype(np.float32), -1)
    stats = [_columns(x.astype(np.float32)[:, :, None]) for x in (lse, along)]
    operands = [*map(_rows, (q, k, v, grad)), *stats, *_optional(mask, seed)]
    return _grad_q(call, operands, q), *_grad_kv(call, operands, k, v)


def _grad_q(call: Call, operands: list[Array], q: Array) -> Array:
    spec = _Specs(call, lambda b, h, i, j: (b, h, i, seen(call, i, j)))
    kernel = pallas.pallas_call(
        functools.partial(kernels.backward_q, call),
        grid=(call.batch, call.heads, *call.blocks),
        in_specs=[spec.q, spec.k, spec.k, spec.q, spec.row, spec.row, *spec.optional],
        out_specs=spec.q,
        out_shape=jax.ShapeDtypeStruct(operands[0].shape, q.dtype),
        scratch_shapes=[_memory(call.block[0], call.features)],
        compiler_params=_sequential(),
        cost_estimate=_cost(call, 3, q),
        interpret=call.interpret,
        name="attention_backward_queries",
    )
    return kernel(*operands)[:, :, : call.queries]


def _grad_kv(call: Call, operands: list[Array], k: Array, v: Array) -> tuple[Array, Array]:
    """For a block of keys, all heads that share it and all their queries, one after the other."""
    rows, columns = call.blocks

    def place(b: Any, h: Any, j: Any, n: Any) -> tuple[Any, ...]:
        i = rest(n, rows)
        if call.is_causal:
            first = quotient(j * call.block[1], call.block[0])
            i = jnp.maximum(i, jnp.minimum(first, rows - 1))
        return b, h * call.group + quotient(n, rows), i, j

    spec = _Specs(call, place)
    kernel = pallas.pallas_call(
        functools.partial(kernels.backward_kv, call),
        grid=(call.batch, call.key_heads, columns, rows * call.group),
        in_specs=[spec.q, spec.k, spec.k, spec.q, spec.row, spec.row, *spec.optional],
        out_specs=[spec.k, spec.k],
        out_shape=[jax.ShapeDtypeStruct(operands[1].shape, x.dtype) for x in (k, v)],
        scratch_shapes=[_memory(call.block[1], call.features)] * 2,
        compiler_params=_sequential(),
        cost_estimate=_cost(call, 4, k),
        interpret=call.interpret,
        name="attention_backward_keys",
    )
    grad_k, grad_v = kernel(*operands)
    return grad_k[:, :, : call.keys], grad_v[:, :, : call.keys]


class _Specs:
    """Which block of each operand a step of the grid gets.

    place: (batch, head, block of queries, block of keys) of a step.
    """

    def __init__(self, call: Call, place: Callable[..., tuple[Any, ...]]) -> None:
        row, column = call.block

        def spec(shape: tuple[int, ...], at: Callable[..., tuple[Any, ...]]) -> pallas.BlockSpec:
            return pallas.BlockSpec(shape, lambda *step: at(*place(*step)))

        group, zero = call.group, np.int32(0)
        self.q = spec((1, 1, row, call.features), lambda b, h, i, j: (b, h, i, zero))
        self.k = spec(
            (1, 1, column, call.features), lambda b, h, i, j: (b, quotient(h, group), j, zero)
        )
        self.row = spec((1, 1, 1, row), lambda b, h, i, j: (b, h, zero, i))
        self.optional: list[pallas.BlockSpec] = []
        if call.mask is not None:
            of_batch, of_head, of_row = (size > 1 for size in call.mask[:3])
            self.optional = [
                spec(
                    (1, 1, row if of_row else 1, column),
                    lambda b, h, i, j: (
                        b if of_batch else zero,
                        h if of_head else zero,
                        i if of_row else zero,
                        j,
                    ),
                )
            ]
        if call.dropout:
            self.optional.append(pallas.BlockSpec(memory_space=tpu.SMEM))


def _rows(x: Array) -> Array:
    return _pad(x, 2)


def _columns(x: Array) -> Array:
    return _pad(x, 3)


def _optional(mask: Array | None, seed: Array | None) -> list[Array]:
    """Mask and seed as the kernels read them: int8 for bool, and float32 for what is added."""
    seeds = [] if seed is None else [seed]
    if mask is None:
        return seeds
    mask = mask.astype(np.int8 if mask.dtype == np.bool_ else np.float32)
    return [_pad(_pad(mask, 2) if mask.shape[2] > 1 else mask, 3), *seeds]


def _pad(x: Array, axis: int) -> Array:
    more = padded(x.shape[axis]) - x.shape[axis]
    return jnp.pad(x, [(0, more if at == axis else 0) for at in range(x.ndim)]) if more else x


def _memory(rows: int, columns: int) -> Any:
    """Float32 numbers that stay while the last dimension of the grid runs."""
    return tpu.VMEM((rows, columns), np.dtype(np.float32))


def _sequential() -> Any:
    """The last dimension of the grid adds up; steps of the others are independent."""
    return tpu.CompilerParams(dimension_semantics=("parallel",) * 3 + ("arbitrary",))


def _cost(call: Call, products: int, x: Array) -> pallas.CostEstimate:
    pairs = call.batch * call.heads * call.queries * call.keys // (2 if call.is_causal else 1)
    of_queries = call.heads * call.queries * (1 if products == 2 else 2)
    rows = call.batch * (2 * of_queries + 2 * call.key_heads * call.keys)
    return pallas.CostEstimate(
        flops=2 * products * pairs * call.features,
        transcendentals=pairs,
        bytes_accessed=rows * call.features * x.dtype.itemsize,
    )
