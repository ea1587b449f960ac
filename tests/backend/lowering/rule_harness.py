"""Runs one rule outside the compiler: torch tensors in, the rule under jax.jit, torch out."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import RULES


def to_jax(tensor: torch.Tensor) -> jax.Array:
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype == torch.bfloat16:
        array = tensor.view(torch.int16).numpy().view(dtypes.to_numpy(torch.bfloat16))
    else:
        array = tensor.numpy()
    return jax.numpy.asarray(array)


def to_torch(array: jax.Array) -> torch.Tensor:
    host = np.array(array)
    if host.dtype == dtypes.to_numpy(torch.bfloat16):
        return torch.from_numpy(host.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(host)


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What the rule of `op` computes for these torch arguments, with the rule's own dtypes."""
    flat, spec = pytree.tree_flatten((args, kwargs))
    positions = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]

    def traced(*tensors: jax.Array) -> Any:
        leaves = list(flat)
        for position, tensor in zip(positions, tensors, strict=True):
            leaves[position] = tensor
        call_args, call_kwargs = pytree.tree_unflatten(leaves, spec)
        result = RULES[op].function(*call_args, **call_kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else result

    with jax.enable_x64(True):
        result = jax.jit(traced)(*(to_jax(flat[i]) for i in positions))
        return jax.tree.map(to_torch, result)


def check(op: Any, *args: Any, **kwargs: Any) -> None:
    """Assert that the rule of `op` gives what eager gives: shapes, and values at default bounds."""
    expected = op(*args, **kwargs)
    actual = run(op, *args, **kwargs)
    multiple = isinstance(expected, (tuple, list))
    pairs = zip(expected, actual, strict=True) if multiple else [(expected, actual)]
    for want, got in pairs:
        if want is None:
            continue
        assert tuple(got.shape) == tuple(want.shape), (op, tuple(got.shape), tuple(want.shape))
        torch.testing.assert_close(got.to(want.dtype), want.contiguous(), equal_nan=True)
