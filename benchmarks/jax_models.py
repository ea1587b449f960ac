"""The models of torch_models.py written by hand in JAX, and their training step: what to match.

Parameters and buffers are dictionaries with the names and layouts of the torch module's, so both
sides have the same interface and can be given the same numbers. Labels and tokens are int32, as
JAX has them; everything else is as torch has it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import torch
from jax import lax

Array = jax.Array
Arrays = dict[str, Array]
# (parameters, buffers, key, *inputs) -> loss, new buffers
Loss = Callable[..., tuple[Array, Arrays]]


def state_of(model: torch.nn.Module) -> tuple[Arrays, Arrays, Arrays]:
    """The parameters and buffers of a torch module, and momenta of zero."""
    parameters = {name: jnp.asarray(p.detach().numpy()) for name, p in model.named_parameters()}
    buffers = {name: jnp.asarray(b.numpy()) for name, b in model.named_buffers()}
    return parameters, buffers, jax.tree.map(jnp.zeros_like, parameters)


def inputs_of(batch: Sequence[torch.Tensor]) -> tuple[Array, ...]:
    """Torch tensors as JAX arrays; int64 becomes int32."""
    return tuple(jnp.asarray(tensor.numpy()) for tensor in batch)


def training_step(loss: Loss, rate: float = 0.1, momentum: float = 0.9) -> Callable[..., tuple]:
    """Forward, backward, SGD with momentum; parameters, buffers and momenta are donated."""

    @partial(jax.jit, donate_argnums=(0, 1, 2), keep_unused=True)
    def step(parameters: Arrays, buffers: Arrays, momenta: Arrays, key: Array, *inputs: Array):
        grad = jax.value_and_grad(loss, has_aux=True)
        (value, buffers), gradients = grad(parameters, buffers, key, *inputs)
        momenta = jax.tree.map(lambda m, g: momentum * m + g, momenta, gradients)
        parameters = jax.tree.map(lambda p, m: p - rate * m, parameters, momenta)
        return parameters, buffers, momenta, value

    return step


def evaluation(loss: Loss) -> Callable[..., Array]:
    """The loss of a batch alone."""
    return jax.jit(lambda *arguments: loss(*arguments)[0])


def mnist(
    p: Arrays,
    buffers: Arrays,
    key: Array,
    image: Array,
    label: Array,
    *,
    rates: tuple[float, float] = (0.25, 0.5),
):
    key1, key2 = jax.random.split(key)
    x = jax.nn.relu(conv(image, p["conv1.weight"]) + p["conv1.bias"][:, None, None])
    x = jax.nn.relu(conv(x, p["conv2.weight"]) + p["conv2.bias"][:, None, None])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = dropout(x, rates[0], key1).reshape(x.shape[0], -1)
    x = dropout(jax.nn.relu(linear(p, "fc1", x)), rates[1], key2)
    return cross_entropy(linear(p, "fc2", x), label), buffers


def resnet18(
    p: Arrays,
    buffers: Arrays,
    key: Array,
    image: Array,
    label: Array,
    *,
    training: bool = True,
):
    new = dict(buffers)
    norm = partial(_batch_norm, p, new) if training else partial(_running_norm, p, buffers)
    x = jax.nn.relu(norm("bn1", conv(image, p["conv1.weight"], 2, 3)))
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pads)
    for name in (f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)):
        stride = 2 if name in ("layer2.0", "layer3.0", "layer4.0") else 1
        y = jax.nn.relu(norm(f"{name}.bn1", conv(x, p[f"{name}.conv1.weight"], stride, 1)))
        y = norm(f"{name}.bn2", conv(y, p[f"{name}.conv2.weight"], 1, 1))
        if stride == 2:
            shortcut = conv(x, p[f"{name}.downsample.0.weight"], 2)
            x = norm(f"{name}.downsample.1", shortcut)
        x = jax.nn.relu(x + y)
    return cross_entropy(linear(p, "fc", x.mean((2, 3))), label), new


def gpt(
    p: Arrays,
    buffers: Arrays,
    key: Array,
    tokens: Array,
    target: Array,
    *,
    heads: int = 4,
    rate: float = 0.0,
):
    keys = (jax.random.fold_in(key, index) for index in itertools.count())
    layers = sum(name.endswith("qkv.weight") for name in p)
    x = p["tokens.weight"][tokens] + p["positions.weight"]
    x = dropout(x, rate, next(keys))
    for name in (f"blocks.{layer}" for layer in range(layers)):
        y = _attend(p, name, layer_norm(p, f"{name}.norm1", x), heads, rate, next(keys))
        x = x + dropout(y, rate, next(keys))
        y = jax.nn.gelu(linear(p, f"{name}.up", layer_norm(p, f"{name}.norm2", x)), False)
        x = x + dropout(linear(p, f"{name}.down", y), rate, next(keys))
    logits = layer_norm(p, "norm", x) @ p["tokens.weight"].T
    return cross_entropy(logits, target), buffers


def _attend(p: Arrays, name: str, x: Array, heads: int, rate: float, key: Array) -> Array:
    batch, length, width = x.shape
    q, k, v = jnp.split(linear(p, f"{name}.qkv", x), 3, -1)
    q, k, v = (t.reshape(batch, length, heads, -1) for t in (q, k, v))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(width // heads)
    seen = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
    y = jnp.einsum("bhts,bshd->bthd", dropout(weights, rate, key), v)
    return linear(p, f"{name}.out", y.reshape(batch, length, width))


def conv(x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
    return lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2)


def linear(p: Arrays, name: str, x: Array) -> Array:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _batch_norm(p: Arrays, buffers: Arrays, name: str, x: Array) -> Array:
    """Statistics in one pass over x, as flax takes them; they update the running ones."""
    mean = x.mean((0, 2, 3))
    var = jnp.maximum(jnp.square(x).mean((0, 2, 3)) - jnp.square(mean), 0)
    count = x.size // x.shape[1]
    for statistic, value in (("mean", mean), ("var", var * (count / (count - 1)))):
        running = f"{name}.running_{statistic}"
        buffers[running] = 0.9 * buffers[running] + 0.1 * value
    buffers[f"{name}.num_batches_tracked"] += 1
    return _normal(p, name, x, mean, var)


def _running_norm(p: Arrays, buffers: Arrays, name: str, x: Array) -> Array:
    return _normal(p, name, x, *(buffers[f"{name}.running_{part}"] for part in ("mean", "var")))


def _normal(p: Arrays, name: str, x: Array, mean: Array, var: Array) -> Array:
    scale = lax.rsqrt(var + 1e-5) * p[f"{name}.weight"]
    column = (-1, 1, 1)
    return (x - mean.reshape(column)) * scale.reshape(column) + p[f"{name}.bias"].reshape(column)


def layer_norm(p: Arrays, name: str, x: Array, epsilon: float = 1e-5) -> Array:
    mean = x.mean(-1, keepdims=True)
    var = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + epsilon) * p[f"{name}.weight"] + p[f"{name}.bias"]


def dropout(x: Array, rate: float, key: Array) -> Array:
    if not rate:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def cross_entropy(logits: Array, label: Array) -> Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), label[..., None], -1)
    return -chosen.mean()


LOSSES: dict[str, Loss] = {
    "mnist": mnist,
    "resnet18": resnet18,
    "gpt": gpt,
    "gpt_dropout": partial(gpt, rate=0.1),
}
# Those that evaluation does another way: without dropout, with running statistics.
EVALUATIONS: dict[str, Loss] = {
    "mnist": partial(mnist, rates=(0, 0)),
    "resnet18": partial(resnet18, training=False),
}
