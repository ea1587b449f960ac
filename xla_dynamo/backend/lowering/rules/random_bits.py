"""Random bits, uniforms and normals from a PRNG key: the source of all random rules.

The generator is Threefry-2x32 with 20 rounds, keyed per op; an element's counter is its linear
index, so its value depends on nothing but key and index: the same numbers on CPU, GPU and TPU, and
on one device or many. Its 32-bit words are those of jax.random.bits. It is written out here in
plain integer arithmetic, because jax.random rolls the rounds into a loop on CPU, which no consumer
can fuse with. Measured: dropout of a float32 [32, 64, 12, 12], then 10^6 normals, on two CPU cores
(eager PyTorch 2.0 ms, 3.4 ms):

    Threefry, written out   0.7 ms   2.3 ms    on TPU v5e 5.3 MB of traffic for the dropout
    jax.random's Threefry   5.8 ms  13.9 ms                5.3 MB
    rbg / Philox            5.1 ms  16.4 ms               19.5 MB: its bits pass through memory

With the option random_bits="rbg" the words are those of the device's own generator, whose state is
the key: on a TPU its bits cost less time than Threefry's arithmetic, if more traffic.

`stream` is the counter's other word: one op draws several independent arrays from one key.
"""

from __future__ import annotations

import math

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering import registry
from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import Unsupported

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def words(key: Array, shape: tuple[int, ...], stream: int = 0) -> tuple[Array, Array]:
    """Two independent uint32 words for each element."""
    if math.prod(shape) >= 2**32:
        raise Unsupported(
            "It draws 2**32 numbers or more, and the generator counts with 32 bits.",
            "Draw them in several parts.",
        )
    if registry.random_bits() == "rbg":
        both = _generated(key, (2, *shape), stream)
        return both[0], both[1]
    x0 = jnp.full(shape, stream, jnp.uint32)
    return threefry(key[0], key[1], x0, _linear_index(shape))


def bits(key: Array, shape: tuple[int, ...], stream: int = 0) -> Array:
    """32 random bits for each element, as uint32."""
    if registry.random_bits() == "rbg":
        return _generated(key, shape, stream)
    x0, x1 = words(key, shape, stream)
    return x0 ^ x1


def bits64(key: Array, shape: tuple[int, ...], stream: int = 0) -> Array:
    """64 random bits for each element, as uint64."""
    x0, x1 = words(key, shape, stream)
    return (x0.astype(jnp.uint64) << 32) | x1.astype(jnp.uint64)


def uniform(key: Array, shape: tuple[int, ...], dtype: np.dtype, stream: int = 0) -> Array:
    """Multiples of 2**-digits in [0, 1), with the digits of `dtype`, so that none rounds to 1."""
    digits = jnp.finfo(dtype).nmant + 1
    wide = accumulation(dtype)
    if digits > 32:
        drawn = (bits64(key, shape, stream) >> (64 - digits)).astype(jnp.int64)
    else:  # signed, because few machines convert unsigned integers to floats at full speed
        drawn = (bits(key, shape, stream) >> (32 - digits)).astype(jnp.int32)
    return (drawn.astype(wide) * wide.type(2.0**-digits)).astype(dtype)


def fine_uniform(key: Array, shape: tuple[int, ...], dtype: np.dtype, stream: int = 0) -> Array:
    """In (0, 1), float32 or float64, with full precision near 0: for logarithms."""
    wide = accumulation(dtype)
    drawn, size = (bits64, 64) if wide == np.float64 else (bits, 32)
    unit = drawn(key, shape, stream).astype(wide) * wide.type(2.0**-size)
    return lax.clamp(wide.type(2.0 ** -(size + 1)), unit, np.nextafter(wide.type(1), wide.type(0)))


def signed_uniform(key: Array, shape: tuple[int, ...], dtype: np.dtype, stream: int = 0) -> Array:
    """In (-1, 1), float32 or float64: odd multiples of 2**-digits, thus symmetric and never 0."""
    wide = accumulation(dtype)
    if wide == np.float64:
        drawn = lax.bitcast_convert_type(bits64(key, shape, stream), jnp.int64) >> 11
        return (2 * drawn + 1).astype(wide) * 2.0**-53
    drawn = lax.bitcast_convert_type(bits(key, shape, stream), jnp.int32) >> 8
    return (2 * drawn + 1).astype(wide) * np.float32(2.0**-24)


def normal(key: Array, shape: tuple[int, ...], dtype: np.dtype, stream: int = 0) -> Array:
    """Standard normals, float32 or float64, finite by construction."""
    unit = signed_uniform(key, shape, dtype, stream)
    return unit.dtype.type(math.sqrt(2)) * lax.erf_inv(unit)


def exponential(key: Array, shape: tuple[int, ...], dtype: np.dtype, stream: int = 0) -> Array:
    """Standard exponentials, float32 or float64, greater than 0 and finite."""
    return -jnp.log1p(-fine_uniform(key, shape, dtype, stream))


def _generated(key: Array, shape: tuple[int, ...], stream: int) -> Array:
    """The device's random words: its state is the op's key, and the stream.

    Where that generator is Philox, the third word counts: streams that differ in it overlap.
    """
    state = jnp.concatenate([key, jnp.asarray([_PARITY, stream], jnp.uint32)])
    _, drawn = lax.rng_bit_generator(state, shape, np.uint32)
    return drawn


def _linear_index(shape: tuple[int, ...]) -> Array:
    # One iota per dimension, not a reshaped flat one: it fuses in any layout.
    index = jnp.zeros(shape, jnp.uint32)
    for dim in range(len(shape)):
        stride = np.uint32(math.prod(shape[dim + 1 :]))
        index = index + lax.broadcasted_iota(jnp.uint32, shape, dim) * stride
    return index


def threefry(k0: Array, k1: Array, x0: Array, x1: Array, rounds: int = 20) -> tuple[Array, Array]:
    """Threefry-2x32 (Salmon et al., SC 2011): the counter (x0, x1) under the key (k0, k1)."""
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for at in range(rounds):
        block, turn = divmod(at, 4)
        rotation = _ROTATIONS[block % 2][turn]
        x0 = x0 + x1
        x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
        x1 = x1 ^ x0
        if turn == 3:
            x0 = x0 + keys[(block + 1) % 3]
            x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1
