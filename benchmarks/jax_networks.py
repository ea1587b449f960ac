"""The networks of torch_networks.py written by hand in JAX.

In mixed precision, products and convolutions take operands of `narrow`, as within torch.autocast;
norms, softmax and losses compute in float32 whatever their operands are, as flax has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from .jax_models import Array, Arrays, Loss
from .torch_networks import HEADS, WIDTH

Narrow = Callable[[Array], Array]


def gpt2(narrow: Narrow, p: Arrays, buffers: Arrays, key: Array, tokens: Array, target: Array):
    x = _embedded(p, tokens)
    for name in ("layers.0", "layers.1"):
        parts = jnp.split(_linear(narrow, p, f"{name}.qkv", _norm(p, f"{name}.norm1", x)), 3, -1)
        q, k, v = (_heads(part, HEADS) for part in parts)
        x = x + _linear(narrow, p, f"{name}.out", _joined(_attend(q, k, v, causal=True)))
        x = x + _mlp(narrow, p, f"{name}.mlp", _norm(p, f"{name}.norm2", x))
    return _token_loss(_tied(narrow, p, x), target), buffers


def bert(narrow: Narrow, p: Arrays, buffers: Arrays, key: Array, tokens: Array, target: Array):
    x = _embedded(p, tokens)
    for name in ("layers.0", "layers.1"):
        x = _norm(p, f"{name}.norm1", x + _attention(narrow, p, f"{name}.attention", x, x, HEADS))
        x = _norm(p, f"{name}.norm2", x + _mlp(narrow, p, f"{name}.mlp", x))
    return _token_loss(_tied(narrow, p, x), target), buffers


def llama(narrow: Narrow, p: Arrays, buffers: Arrays, key: Array, tokens: Array, target: Array):
    x = p["tokens.weight"][tokens]
    size = WIDTH // HEADS
    angles = jnp.arange(tokens.shape[1])[:, None] / 1e4 ** (jnp.arange(0, size, 2) / size)
    angles = jnp.concatenate((angles, angles), -1)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)

    def rotated(x: Array) -> Array:
        first, second = jnp.split(x, 2, -1)
        return x * cos + jnp.concatenate((-second, first), -1) * sin

    for name in ("layers.0", "layers.1"):
        y = _rms_norm(p, f"{name}.norm1", x)
        q, k, v = (
            _heads(_linear(narrow, p, f"{name}.attention.{part}", y), heads)
            for part, heads in (("q", HEADS), ("k", 4), ("v", 4))
        )
        y = _joined(_attend(rotated(q), rotated(k), v, causal=True))
        x = x + _linear(narrow, p, f"{name}.attention.out", y)
        y = _rms_norm(p, f"{name}.norm2", x)
        gate, up = (_linear(narrow, p, f"{name}.{part}", y) for part in ("gate", "up"))
        x = x + _linear(narrow, p, f"{name}.down", jax.nn.silu(gate) * up)
    return _token_loss(_linear(narrow, p, "head", _rms_norm(p, "norm", x)), target), buffers


def vit(narrow: Narrow, p: Arrays, buffers: Arrays, key: Array, image: Array, label: Array):
    x = _conv(narrow, image, p["patches.weight"], 16) + narrow(p["patches.bias"])[:, None, None]
    x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
    first = jnp.broadcast_to(p["first"], (len(x), 1, WIDTH))
    x = jnp.concatenate((first, x.astype(first.dtype)), 1) + p["positions"]
    for name in ("layers.0", "layers.1"):
        y = _norm(p, f"{name}.norm1", x)
        x = x + _attention(narrow, p, f"{name}.attention", y, y, HEADS)
        x = x + _mlp(narrow, p, f"{name}.mlp", _norm(p, f"{name}.norm2", x))
    return _token_loss(_linear(narrow, p, "head", _norm(p, "norm", x)[:, 0]), label), buffers


def resnet50(narrow: Narrow, p: Arrays, buffers: Arrays, key: Array, image: Array, label: Array):
    new: Arrays = {}
    norm, conv = partial(_batch_norm, p, buffers, new), partial(_conv, narrow)
    x = jax.nn.relu(norm("bn1", conv(image, p["conv1.weight"], 2, 3)))
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pads)
    for name, stride in (("blocks.0", 1), ("blocks.1", 2), ("blocks.2", 2), ("blocks.3", 2)):
        y = jax.nn.relu(norm(f"{name}.bn1", conv(x, p[f"{name}.conv1.weight"])))
        y = jax.nn.relu(norm(f"{name}.bn2", conv(y, p[f"{name}.conv2.weight"], stride, 1)))
        y = norm(f"{name}.bn3", conv(y, p[f"{name}.conv3.weight"]))
        x = jax.nn.relu(y + norm(f"{name}.bn4", conv(x, p[f"{name}.shortcut.weight"], stride)))
    return _token_loss(_linear(narrow, p, "head", x.mean((2, 3))), label), new


def unet(
    narrow: Narrow,
    p: Arrays,
    buffers: Arrays,
    key: Array,
    x: Array,
    time: Array,
    text: Array,
    target: Array,
):
    def conv(name: str, x: Array) -> Array:
        bias = narrow(p[f"{name}.bias"])[:, None, None]
        return _conv(narrow, x, p[f"{name}.weight"], 1, 1) + bias

    y = conv("conv1", jax.nn.silu(_group_norm(p, "norm1", x)))
    y = y + _linear(narrow, p, "time", jax.nn.silu(time))[:, :, None, None]
    x = x + conv("conv2", jax.nn.silu(_group_norm(p, "norm2", y)))
    rows = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
    y = _norm(p, "norm3", rows)
    rows = rows + _attention(narrow, p, "attention", y, y, 5)
    rows = rows + _attention(narrow, p, "cross", _norm(p, "norm4", rows), text, 5)
    rows = rows + _mlp(narrow, p, "mlp", _norm(p, "norm5", rows))
    target = target.reshape(*target.shape[:2], -1).swapaxes(1, 2)
    return jnp.square(rows.astype(jnp.float32) - target.astype(jnp.float32)).mean(), buffers


def _embedded(p: Arrays, tokens: Array) -> Array:
    return p["tokens.weight"][tokens] + p["positions.weight"]


def _tied(narrow: Narrow, p: Arrays, x: Array) -> Array:
    return narrow(_norm(p, "norm", x)) @ narrow(p["tokens.weight"]).T


def _linear(narrow: Narrow, p: Arrays, name: str, x: Array) -> Array:
    y = narrow(x) @ narrow(p[f"{name}.weight"]).T
    return y + narrow(p[f"{name}.bias"]) if f"{name}.bias" in p else y


def _mlp(narrow: Narrow, p: Arrays, name: str, x: Array) -> Array:
    y = jax.nn.gelu(_linear(narrow, p, f"{name}.up", x), approximate=False)
    return _linear(narrow, p, f"{name}.down", y)


def _attention(narrow: Narrow, p: Arrays, name: str, x: Array, context: Array, heads: int) -> Array:
    q = _heads(_linear(narrow, p, f"{name}.q", x), heads)
    k, v = (_heads(_linear(narrow, p, f"{name}.{part}", context), heads) for part in "kv")
    return _linear(narrow, p, f"{name}.out", _joined(_attend(q, k, v)))


def _heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _joined(y: Array) -> Array:
    batch, heads, length, size = y.shape
    return y.swapaxes(1, 2).reshape(batch, length, heads * size)


def _attend(q: Array, k: Array, v: Array, *, causal: bool = False) -> Array:
    """Scores and softmax in float32; query heads in groups that share a key head."""
    batch, heads, length, size = q.shape
    q = q.reshape(batch, k.shape[1], -1, length, size)
    scores = jnp.einsum("bkgtd,bksd->bkgts", q, k, preferred_element_type=jnp.float32)
    scores = scores / math.sqrt(size)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    weights = jax.nn.softmax(scores).astype(v.dtype)
    return jnp.einsum("bkgts,bksd->bkgtd", weights, v).reshape(batch, heads, length, size)


def _norm(p: Arrays, name: str, x: Array) -> Array:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    var = jnp.square(wide - mean).mean(-1, keepdims=True)
    y = (wide - mean) * lax.rsqrt(var + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]
    return y.astype(x.dtype)


def _rms_norm(p: Arrays, name: str, x: Array) -> Array:
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + jnp.finfo(x.dtype).eps)
    return (wide * scale * p[f"{name}.weight"]).astype(x.dtype)


def _group_norm(p: Arrays, name: str, x: Array, groups: int = 32) -> Array:
    wide = x.astype(jnp.float32).reshape(x.shape[0], groups, -1)
    mean = wide.mean(-1, keepdims=True)
    var = jnp.square(wide - mean).mean(-1, keepdims=True)
    y = ((wide - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape)
    weight, bias = (p[f"{name}.{part}"][:, None, None] for part in ("weight", "bias"))
    return (y * weight + bias).astype(x.dtype)


def _batch_norm(p: Arrays, buffers: Arrays, new: Arrays, name: str, x: Array) -> Array:
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 2, 3))
    var = jnp.maximum(jnp.square(wide).mean((0, 2, 3)) - jnp.square(mean), 0)
    count = x.size // x.shape[1]
    for statistic, value in (("mean", mean), ("var", var * (count / (count - 1)))):
        running = buffers[f"{name}.running_{statistic}"]
        updated = 0.9 * running.astype(jnp.float32) + 0.1 * value
        new[f"{name}.running_{statistic}"] = updated.astype(running.dtype)
    new[f"{name}.num_batches_tracked"] = buffers[f"{name}.num_batches_tracked"] + 1
    scale = lax.rsqrt(var + 1e-5) * p[f"{name}.weight"]
    shift = p[f"{name}.bias"] - mean * scale
    return (wide * scale[:, None, None] + shift[:, None, None]).astype(x.dtype)


def _conv(narrow: Narrow, x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
    pads = [(padding, padding)] * 2
    return lax.conv_general_dilated(narrow(x), narrow(weight), (stride, stride), pads)


def _token_loss(logits: Array, target: Array) -> Array:
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, target[..., None], -1).mean()


LOSSES: dict[str, Callable[..., tuple[Array, Arrays]]] = {
    "gpt2": gpt2,
    "bert": bert,
    "llama": llama,
    "vit": vit,
    "resnet50": resnet50,
    "unet": unet,
}


def loss(name: str, *, mixed: bool) -> Loss:
    """The loss of a network, in mixed precision or in the dtype of its parameters."""
    return partial(LOSSES[name], partial(_to, jnp.bfloat16) if mixed else _as_it_is)


def _to(dtype: jnp.dtype, x: Array) -> Array:
    return x.astype(dtype)


def _as_it_is(x: Array) -> Array:
    return x
