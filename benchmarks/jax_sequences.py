"""The networks of torch_sequences.py and torch_dlrm.py written by hand in JAX."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from .jax_models import Array, Arrays, Loss, cross_entropy, dropout, layer_norm, linear


def bert_layer(
    p: Arrays,
    buffers: Arrays,
    key: Array,
    x: Array,
    target: Array,
    *,
    heads: int = 12,
    rate: float = 0.1,
):
    keys = jax.random.split(key, 4)
    y = _attend(p, "layer.self_attn", x, heads, rate, keys[0])
    x = layer_norm(p, "layer.norm1", x + dropout(y, rate, keys[1]))
    y = jax.nn.gelu(linear(p, "layer.linear1", x), approximate=False)
    y = linear(p, "layer.linear2", dropout(y, rate, keys[2]))
    x = layer_norm(p, "layer.norm2", x + dropout(y, rate, keys[3]))
    return jnp.square(x - target).mean(), buffers


def _attend(p: Arrays, name: str, x: Array, heads: int, rate: float, key: Array) -> Array:
    """Attention of all positions to all, with dropout of its weights."""
    projected = x @ p[f"{name}.in_proj_weight"].T + p[f"{name}.in_proj_bias"]
    q, k, v = (t.reshape(*x.shape[:2], heads, -1) for t in jnp.split(projected, 3, -1))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    weights = dropout(jax.nn.softmax(scores), rate, key)
    return linear(p, f"{name}.out_proj", jnp.einsum("bhts,bshd->bthd", weights, v).reshape(x.shape))


def lstm(p: Arrays, buffers: Arrays, key: Array, tokens: Array, target: Array):
    x = p["embedding.weight"][tokens]
    for layer in (0, 1):
        x = _recurrent(p, layer, x)
    return cross_entropy(linear(p, "head", x), target), buffers


def _recurrent(p: Arrays, layer: int, x: Array) -> Array:
    """The inputs' products are those of all steps at once; a step adds the state's."""
    weights = p[f"lstm.weight_hh_l{layer}"].T
    bias = p[f"lstm.bias_ih_l{layer}"] + p[f"lstm.bias_hh_l{layer}"]
    gates = x @ p[f"lstm.weight_ih_l{layer}"].T + bias

    def step(state: tuple[Array, Array], gates: Array):
        hidden, cell = state
        i, f, g, o = jnp.split(gates + hidden @ weights, 4, -1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    zeros = jnp.zeros((x.shape[0], weights.shape[0]), x.dtype)
    _, hidden = lax.scan(step, (zeros, zeros), gates.swapaxes(0, 1))
    return hidden.swapaxes(0, 1)


def dlrm(p: Arrays, buffers: Arrays, key: Array, dense: Array, indices: Array, clicked: Array):
    own = jax.nn.relu(_two_layers(p, "bottom", dense))
    bags = [p[f"tables.{k}.weight"][indices[:, k]].sum(1) for k in range(indices.shape[1])]
    vectors = jnp.stack((own, *bags), 1)
    first, second = jnp.triu_indices(vectors.shape[1], 1)
    products = (vectors @ vectors.mT)[:, first, second]
    score = _two_layers(p, "top", jnp.concatenate((own, products), 1))[:, 0]
    return (jax.nn.softplus(score) - clicked * score).mean(), buffers


def _two_layers(p: Arrays, name: str, x: Array) -> Array:
    return linear(p, f"{name}.2", jax.nn.relu(linear(p, f"{name}.0", x)))


LOSSES: dict[str, Loss] = {"bert_layer": bert_layer, "lstm": lstm, "dlrm": dlrm}
EVALUATIONS: dict[str, Loss] = {"bert_layer": partial(bert_layer, rate=0.0)}
