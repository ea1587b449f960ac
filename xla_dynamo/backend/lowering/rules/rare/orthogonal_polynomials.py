"""Orthogonal polynomials p_n(x) with a tensor of degrees, by their three-term recurrences.

One loop runs up to the largest degree; each element keeps the value at its own. Degrees are
truncated to integers; negative ones give 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules._promotion import compute

aten = torch.ops.aten

# p_1(x), and p_{k+1} of (k, x, p_k, p_{k-1}); p_0 is 1.
_First = Callable[[Array], Array]
_Next = Callable[[Array, Array, Array, Array], Array]


def _chebyshev(k: Array, x: Array, p: Array, q: Array) -> Array:
    return 2 * x * p - q


_FAMILIES: dict[str, tuple[_First, _Next]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: 2 * x, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, _chebyshev),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x, p, q: 2 * (x * p - k * q)),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1),
    ),
}


def _evaluate(first: _First, following: _Next, shifted: bool, x: Array, n: Array) -> Array:
    x, n = jnp.broadcast_arrays(x, n)
    x = 2 * x - 1 if shifted else x
    degree = n.astype(np.int32)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        k, each, p, q, result = state
        p, q = following(each, x, p, q), p
        return k + 1, each + 1, p, q, jnp.where(degree == k + 1, p, result)

    # k for each element: XLA divides by a scalar through its rounded reciprocal.
    one = jnp.ones_like(x)
    start = jnp.where(degree == 0, one, jnp.where(degree == 1, first(x), jnp.zeros_like(x)))
    highest = jnp.max(degree, initial=0)
    state = (jnp.int32(1), one, first(x), one, start)
    return lax.while_loop(lambda state: state[0] < highest, step, state)[4]


def _register(name: str, first: _First, following: _Next, shifted: bool) -> None:
    def function(x: Array, n: Array) -> Array:
        return _evaluate(first, following, shifted, x, n)

    packet = getattr(aten, f"special_shifted_{name}" if shifted else f"special_{name}")

    @lower(packet.default, packet.x_scalar, packet.n_scalar)
    def polynomial(x: Any, n: Any) -> Array:
        return compute(function, x, n, to_float=True)


for _name, (_first, _following) in _FAMILIES.items():
    _register(_name, _first, _following, shifted=False)
    if _name.startswith("chebyshev"):
        _register(_name, _first, _following, shifted=True)
