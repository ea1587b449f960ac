"""Dropout's mask on the CPU: other platforms' numbers, drawn once for all that read it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules import dropout

KEY, HALF = np.array([3, 4], np.uint32), np.uint32(2**31)


def test_the_mask_is_that_of_other_platforms() -> None:
    with lowering_for(Target("cpu")):
        mask = jax.jit(lambda key: dropout.below(key, (5, 7), HALF))(KEY)
    plain = dropout.below.plain(jnp.asarray(KEY), (5, 7), HALF)
    assert mask.dtype == bool
    assert (mask == plain).all()


def test_bits_are_drawn_once_for_all_readers() -> None:
    def shifts(read: Callable[[Array, Array], object]) -> int:
        def program(key: Array, x: Array) -> object:
            return read(dropout.below(key, x.shape, HALF), x)

        with lowering_for(Target("cpu")):
            compiled = jax.jit(program).lower(KEY, np.ones((64, 64), np.float32)).compile()
        return str(compiled.as_text()).count("shift-left(")

    once = shifts(lambda mask, x: mask)
    assert once > 0
    assert shifts(lambda mask, x: (mask, jnp.where(mask, x, 0))) == once
