"""A user's JAX functions as parts of a program: they are traced where they are called.

JAX is then as it is by default, without 64-bit types, unless an operand has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jax import Array

from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.ops import jax_calls

ops = torch.ops.xla_dynamo


@lower(ops.jax_call.default)
def jax_call(operands: Sequence[Array], name: str) -> list[Array]:
    with _types_of(operands):
        return jax_calls.of_name(name).function(*operands)


@lower(ops.jax_gradient.default)
def jax_gradient(operands: Sequence[Array], grads: Sequence[Array], name: str) -> list[Array]:
    with _types_of(operands):
        return jax_calls.gradients(jax_calls.of_name(name).function, operands, grads)


@contextmanager
def _types_of(operands: Sequence[Array]) -> Iterator[None]:
    if any(jax_adapter.is_wide(x.dtype) for x in operands):
        yield
        return
    with jax_adapter.narrow():
        yield
