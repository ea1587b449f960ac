"""Integer draws: ranges by multiplication, permutations by sorting, categories by running sums.

A range of at most 2**16 takes 32 random bits, a wider one 64. Random bits times the range, of which
the upper half is kept, need no division, and favour no value of a range of at most 2**32 by more
than 2**-16 of its share. Wider ranges are as even as eager's, which takes a remainder of 64 bits,
and what unevenness there is spreads over the whole range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported, lower_random

from . import random_bits

aten = torch.ops.aten

_HALF = np.uint64(0xFFFFFFFF)


def integers(key: Array, shape: Sequence[int], low: int, high: int) -> Array:
    """int64 uniform in [low, high), whose ends are any int64 values (`high` may be 2**63)."""
    shape, count = tuple(shape), high - low
    if count <= 0:
        raise Unsupported(
            f"The range [{low}, {high}) of the random integers is empty.",
            "Pass a high end above the low end.",
        )
    if count <= 2**16:
        drawn = random_bits.bits(key, shape)
        top = (drawn >> 16) * np.uint32(count)
        bottom = ((drawn & np.uint32(0xFFFF)) * np.uint32(count)) >> 16
        offset = ((top + bottom) >> 16).astype(jnp.uint64)
    elif count <= 2**32:
        top, bottom = (word.astype(jnp.uint64) for word in random_bits.words(key, shape))
        offset = (top * np.uint64(count) + (bottom * np.uint64(count) >> 32)) >> 32
    elif count == 2**64:
        offset = random_bits.bits64(key, shape)
    else:
        offset = _multiply_high(random_bits.bits64(key, shape), jnp.asarray(count, jnp.uint64))
    return lax.bitcast_convert_type(offset + np.uint64(low % 2**64), jnp.int64)


def _multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the 128-bit product of two uint64."""
    a1, a0, b1, b0 = a >> 32, a & _HALF, b >> 32, b & _HALF
    middle = a1 * b0 + (a0 * b0 >> 32)
    return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & _HALF)) >> 32)


def _largest(dtype: np.dtype) -> int:
    """The upper end of Tensor.random_: for floats, up to where all integers are representable."""
    if dtype == np.bool_:
        return 1
    if jnp.issubdtype(dtype, jnp.floating):
        return 2 ** (int(jnp.finfo(dtype).nmant) + 1)
    return min(int(jnp.iinfo(dtype).max), 2**63 - 1)


def _drawn(key: Array, x: Array, low: int, high: int | None) -> Array:
    """Like `x`; without a high end, up to the largest integer of its dtype."""
    end = _largest(x.dtype) + 1 if high is None else high
    return integers(key, x.shape, low, end).astype(x.dtype)


def _below_tensor(key: Array, x: Array, high: Array, **_: Any) -> Array:
    count = high.reshape(()).astype(jnp.uint64)
    return _multiply_high(random_bits.bits64(key, x.shape), count).astype(jnp.int64)


_RANGES: dict[tuple[Any, ...], Callable[..., Array]] = {
    (aten.randint.default, aten.randint.generator): (
        lambda key, high, size, **_: integers(key, size, 0, high)
    ),
    (aten.randint.low, aten.randint.low_generator): (
        lambda key, low, high, size, **_: integers(key, size, low, high)
    ),
    (aten.randint_like.default,): lambda key, x, high, **_: integers(key, x.shape, 0, high),
    (aten.randint_like.low_dtype,): (
        lambda key, x, low, high, **_: integers(key, x.shape, low, high)
    ),
    (aten.randint_like.Tensor,): _below_tensor,
    (aten.random.default,): lambda key, x: _drawn(key, x, 0, None),
    (getattr(aten.random, "from"),): _drawn,
    (aten.random.to,): lambda key, x, high: _drawn(key, x, 0, high),
}
for _ops, _rule in _RANGES.items():
    lower_random(*_ops)(_rule)


@lower_random(aten.randperm.default, aten.randperm.generator)
def randperm(key: Array, n: int, **_: Any) -> Array:
    # Two words for each element: ties among a million elements occur once in 10^7 draws.
    index = lax.iota(jnp.int32 if n < 2**31 else jnp.int64, n)
    return lax.sort((*random_bits.words(key, (n,)), index), num_keys=2, is_stable=False)[2]


@lower_random(aten.multinomial.default)
def multinomial(key: Array, weights: Array, num_samples: int, replacement: bool = False) -> Array:
    """Exponential races for one draw and for draws without replacement, else the inverse CDF."""
    wide = dtypes.accumulation(weights.dtype)
    weights = weights.astype(wide)
    if num_samples > 1 and replacement:
        return _inverse_cdf(key, weights, num_samples)
    if num_samples > weights.shape[-1]:
        raise Unsupported(
            "It draws more samples than there are categories, without replacement.",
            "Draw fewer samples, or pass replacement=True.",
        )
    race = weights / random_bits.exponential(key, weights.shape, wide)
    if num_samples == 1:
        return lax.argmax(race, race.ndim - 1, jnp.int64)[..., None]
    return lax.top_k(race, num_samples)[1]


def _inverse_cdf(key: Array, weights: Array, num_samples: int) -> Array:
    rows = weights.reshape(-1, weights.shape[-1])
    cumulated = jnp.cumsum(rows, axis=1)
    drawn = random_bits.uniform(key, (rows.shape[0], num_samples), rows.dtype)
    targets = drawn * cumulated[:, -1:]
    found = jax.vmap(lambda cdf, at: jnp.searchsorted(cdf, at, side="right"))(cumulated, targets)
    # Rounding may select a category of weight 0: take the next one with a positive weight.
    index = lax.broadcasted_iota(jnp.int32, rows.shape, 1)
    last = jnp.max(jnp.where(rows > 0, index, 0), axis=1, keepdims=True)
    following = lax.cummin(jnp.where(rows > 0, index, last), axis=1, reverse=True)
    clipped = jnp.minimum(found, rows.shape[1] - 1)
    chosen = jnp.take_along_axis(following, clipped, axis=1)
    return chosen.reshape(*weights.shape[:-1], num_samples)
