"""The networks of torch_images.py written by hand in JAX, images channels-last as flax has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .jax_models import Array, Arrays, Loss, cross_entropy, layer_norm, linear


def convnext(p: Arrays, buffers: Arrays, key: Array, image: Array, label: Array):
    x = _conv(p, "stem", image.transpose(0, 2, 3, 1), stride=4)
    x = _blocks(p, "stage1", layer_norm(p, "stem_norm", x, 1e-6))
    x = _conv(p, "shrink", layer_norm(p, "shrink_norm", x, 1e-6), stride=2)
    x = _blocks(p, "stage2", x)
    x = layer_norm(p, "norm", x.mean((1, 2)), 1e-6)
    return cross_entropy(linear(p, "head", x), label), buffers


def _blocks(p: Arrays, stage: str, x: Array) -> Array:
    depth = sum(name.startswith(f"{stage}.") and name.endswith(".scale") for name in p)
    for name in (f"{stage}.{block}" for block in range(depth)):
        y = _conv(p, f"{name}.depthwise", x, padding=3, groups=x.shape[-1])
        y = linear(p, f"{name}.up", layer_norm(p, f"{name}.norm", y, 1e-6))
        x = x + p[f"{name}.scale"] * linear(p, f"{name}.down", jax.nn.gelu(y, approximate=False))
    return x


def unet(p: Arrays, buffers: Arrays, key: Array, x: Array, target: Array):
    x, target = (image.transpose(0, 2, 3, 1) for image in (x, target))
    whole = _two_convolutions(p, "down1", x)
    half = _two_convolutions(p, "down2", _halved(whole))
    x = _two_convolutions(p, "middle", _halved(half))
    x = _two_convolutions(p, "up2", jnp.concatenate((_doubled(x), half), -1))
    x = _two_convolutions(p, "up1", jnp.concatenate((_doubled(x), whole), -1))
    return jnp.square(_conv(p, "out", x) - target).mean(), buffers


def _two_convolutions(p: Arrays, name: str, x: Array) -> Array:
    for convolution, norm in ((0, 1), (3, 4)):
        x = _conv(p, f"{name}.{convolution}", x, padding=1)
        x = jax.nn.silu(_group_norm(p, f"{name}.{norm}", x))
    return x


def _halved(x: Array) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _doubled(x: Array) -> Array:
    return jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)


def _conv(
    p: Arrays, name: str, x: Array, stride: int = 1, padding: int = 0, groups: int = 1
) -> Array:
    y = lax.conv_general_dilated(
        x,
        p[f"{name}.weight"],
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "OIHW", "NHWC"),
        feature_group_count=groups,
    )
    return y + p[f"{name}.bias"]


def _group_norm(p: Arrays, name: str, x: Array, groups: int = 8) -> Array:
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean = parts.mean((1, 3), keepdims=True)
    var = jnp.square(parts - mean).mean((1, 3), keepdims=True)
    normal = ((parts - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape)
    return normal * p[f"{name}.weight"] + p[f"{name}.bias"]


LOSSES: dict[str, Loss] = {"convnext": convnext, "unet": unet}
