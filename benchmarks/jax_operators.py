"""Ops as they are written by hand in JAX: what operator_cases.py measures against.

Layouts are PyTorch's (batch, channels, *spatial). Each is what jax.numpy, jax.nn, jax.image or lax
offer for the job, or the formula in them where they offer nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array
Function = Callable[..., Array]


def conv(stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1) -> Function:
    def run(x: Array, weight: Array) -> Array:
        rank = x.ndim - 2
        return lax.conv_general_dilated(
            x,
            weight,
            (stride,) * rank,
            [(padding, padding)] * rank,
            rhs_dilation=(dilation,) * rank,
            feature_group_count=groups,
        )

    return run


def conv_transpose(stride: int, padding: int, output_padding: int = 0) -> Function:
    """lax pads the stretched input, torch crops the output."""

    def run(x: Array, weight: Array) -> Array:
        rank = x.ndim - 2
        pads = [(k - 1 - padding, k - 1 - padding + output_padding) for k in weight.shape[2:]]
        axes = "DHW"[-rank:]
        layout = (f"NC{axes}", f"OI{axes}", f"NC{axes}")
        return lax.conv_transpose(
            x, weight, (stride,) * rank, pads, dimension_numbers=layout, transpose_kernel=True
        )

    return run


def linear(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight.T + bias


def attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(scores), v)


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1])
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)


def grouped_attention(q: Array, k: Array, v: Array) -> Array:
    """Query heads share key heads."""
    shared = q.shape[1] // k.shape[1]
    return attention(q, jnp.repeat(k, shared, 1), jnp.repeat(v, shared, 1))


def normalize(x: Array, axes: Sequence[int], eps: float = 1e-5) -> Array:
    mean = x.mean(axes, keepdims=True)
    var = jnp.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) * lax.rsqrt(var + eps)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    return normalize(x, (-1,)) * weight + bias


def rms_norm(x: Array, weight: Array) -> Array:
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * weight


def batch_norm(x: Array, weight: Array, bias: Array) -> Array:
    return normalize(x, (0, 2, 3)) * weight[:, None, None] + bias[:, None, None]


def frozen_batch_norm(x: Array, weight: Array, bias: Array, mean: Array, scale: Array) -> Array:
    """With running statistics; `scale` squared is the variance."""
    factor = lax.rsqrt(jnp.square(scale) + 1e-5) * weight
    return (x - mean[:, None, None]) * factor[:, None, None] + bias[:, None, None]


def group_norm(groups: int, x: Array, weight: Array, bias: Array) -> Array:
    grouped = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    out = normalize(grouped, (2, 3, 4)).reshape(x.shape)
    return out * weight[:, None, None] + bias[:, None, None]


def instance_norm(x: Array) -> Array:
    return normalize(x, (2, 3))


def max_pool(kernel: int, stride: int, padding: int, x: Array) -> Array:
    rank = x.ndim - 2
    windows = (1, 1, *[kernel] * rank), (1, 1, *[stride] * rank)
    pads = [(0, 0)] * 2 + [(padding, padding)] * rank
    return lax.reduce_window(x, -jnp.inf, lax.max, *windows, pads)


def avg_pool(kernel: int, stride: int, padding: int, x: Array) -> Array:
    rank = x.ndim - 2
    windows = (1, 1, *[kernel] * rank), (1, 1, *[stride] * rank)
    pads = [(0, 0)] * 2 + [(padding, padding)] * rank
    return lax.reduce_window(x, 0.0, lax.add, *windows, pads) / kernel**rank


def adaptive_avg_pool(size: int, x: Array) -> Array:
    """Windows of one size are a reshape; uneven ones a matrix for each axis."""
    if all(n % size == 0 for n in x.shape[2:]):
        height, width = (n // size for n in x.shape[2:])
        return x.reshape(*x.shape[:2], size, height, size, width).mean((3, 5))
    rows, columns = (_averages(n, size) for n in x.shape[2:])
    return jnp.einsum("nchw,ph,qw->ncpq", x, rows, columns)


def _averages(size: int, out: int) -> np.ndarray:
    starts, ends = np.arange(out) * size // out, -(-np.arange(1, out + 1) * size // out)
    places = np.arange(size)
    member = (places >= starts[:, None]) & (places < ends[:, None])
    return (member / (ends - starts)[:, None]).astype(np.float32)


def embedding(indices: Array, weight: Array) -> Array:
    return jnp.take(weight, indices, axis=0)


def embedding_bag(indices: Array, offsets: Array, weight: Array) -> Array:
    bag = jnp.searchsorted(offsets, jnp.arange(indices.shape[0]), side="right") - 1
    rows = jnp.take(weight, indices, axis=0)
    return jax.ops.segment_sum(rows, bag, offsets.shape[0], indices_are_sorted=True)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Classes are axis 1."""
    places = jnp.expand_dims(labels, 1)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, 1), places, 1).mean()


def smoothed_cross_entropy(share: float, logits: Array, labels: Array) -> Array:
    logs = jax.nn.log_softmax(logits, 1)
    chosen = jnp.take_along_axis(logs, labels[:, None], 1).mean()
    return -(1 - share) * chosen - share * logs.mean()


def sort(x: Array) -> tuple[Array, Array]:
    positions = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)
    values, order = lax.sort_key_val(x, positions)
    return values, order


def kth_value(k: int, x: Array) -> Array:
    return jnp.sort(x)[:, k - 1]


def scatter_add(x: Array, index: Array, source: Array) -> Array:
    """Along axis 1."""
    return x.at[jnp.arange(x.shape[0])[:, None], index].add(source)


def scatter(x: Array, index: Array, source: Array) -> Array:
    return x.at[jnp.arange(x.shape[0])[:, None], index].set(source)


def cummax(x: Array) -> tuple[Array, Array]:
    """Running maxima and where they were: the latest of equal values."""
    places = lax.broadcasted_iota(np.int32, x.shape, 1)

    def later(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        wins = b[0] >= a[0]
        return jnp.where(wins, b[0], a[0]), jnp.where(wins, b[1], a[1])

    return lax.associative_scan(later, (x, places), axis=1)


def resize(size: int, method: str, antialias: bool, x: Array) -> Array:
    """Half-pixel centers, as jax.image has them."""
    return jax.image.resize(x, (*x.shape[:2], size, size), method, antialias=antialias)


def resize_aligned(size: int, x: Array) -> Array:
    """Linear, corner on corner."""
    scale = jnp.array([(size - 1) / (n - 1) for n in x.shape[2:]])
    shape = (*x.shape[:2], size, size)
    move = 0.5 - 0.5 * scale
    return jax.image.scale_and_translate(x, shape, (2, 3), scale, move, "linear", antialias=False)


def resize_cubic(size: int, x: Array) -> Array:
    """With PyTorch's kernel (a = -0.75), which jax.image lacks: its way, a matrix for each axis."""
    rows, columns = (_cubic_weights(n, size) for n in x.shape[2:])
    return jnp.einsum("nchw,ph,qw->ncpq", x, rows, columns)


def _cubic_weights(size: int, out: int, a: float = -0.75) -> np.ndarray:
    places = (np.arange(out) + 0.5) * size / out - 0.5
    first = np.floor(places).astype(int)
    matrix = np.zeros((out, size), np.float32)
    for tap in range(-1, 3):
        d = np.abs(places - first - tap)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((d - 5) * d + 8) * d * a - 4 * a
        weight = np.where(d < 1, near, far)
        np.add.at(matrix, (np.arange(out), np.clip(first + tap, 0, size - 1)), weight)
    return matrix


def nearest(factor: int, x: Array) -> Array:
    return jnp.repeat(jnp.repeat(x, factor, 2), factor, 3)


cumulative_log_sum = partial(lax.cumlogsumexp, axis=1)
