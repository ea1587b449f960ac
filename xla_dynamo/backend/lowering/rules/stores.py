"""Writes into the memory of tensors: a custom call of XLA:CPU, see runtime/host_kernels.py."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.graph import kernel_calls
from xla_dynamo.backend.lowering.registry import lower


@lower(torch.ops.xla_dynamo.store.default)
def store(
    values: Sequence[Array], others: Sequence[Array], addresses: Array, first: int
) -> list[Array]:
    mark = jax.ShapeDtypeStruct((1,), jnp.int32)
    shapes = [mark, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in others)]
    call = jax.ffi.ffi_call(kernel_calls.STORE, shapes, has_side_effect=True)
    text = kernel_calls.encode_store(first, len(values))
    return list(call(*values, *others, addresses, call=text))
