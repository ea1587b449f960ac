"""The rule of an FX node as a JAX function of the node's tensors, with results as PyTorch has them.

A random op's function takes the op's index in the graph first: ops that differ in it alone are one
function, and so one body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from . import dtypes, host_kernels
from .nodes import arguments, is_drawn, tensor_operands
from .registry import Target, Unsupported, rule_of


def operand_types(node: Node) -> list[jax.ShapeDtypeStruct]:
    """What `as_function(node)` takes."""
    types = [_type_of(operand) for operand in tensor_operands(node)]
    return [jax.ShapeDtypeStruct((), np.uint32), *types] if is_drawn(node) else types


def _type_of(operand: Node) -> jax.ShapeDtypeStruct:
    value = operand.meta["val"]
    return jax.ShapeDtypeStruct(tuple(value.shape), dtypes.to_numpy(value.dtype))


def as_function(
    node: Node, values: Sequence[torch.Tensor], outputs: Sequence[int], target: Target
) -> Callable[..., list[jax.Array]]:
    """The rule as a function of operands of `operand_types`, with outputs as `values` say."""
    leaves, spec = arguments(node)
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Node)]
    if host_kernels.is_left(node, target):
        return host_kernels.as_function(node)
    rule = _drawn if is_drawn(node) else _function_of(node.target)
    indices = 1 if is_drawn(node) else 0

    def function(*operands: jax.Array) -> list[jax.Array]:
        filled = list(leaves)
        for position, tensor in zip(positions, operands[indices:], strict=True):
            filled[position] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        result = rule(*operands[:indices], *args, **kwargs)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        return [_as_declared(results[i], v) for i, v in zip(outputs, values, strict=True)]

    return function


def _drawn(index: jax.Array, op: Any, key: jax.Array, *args: Any, **kwargs: Any) -> Any:
    """A random rule with the key of this op: the graph's key and the op's index in the graph."""
    own = jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), index)
    return _function_of(op)(jax.random.key_data(own), *args, **kwargs)


def _function_of(op: Any) -> Callable[..., Any]:
    rule = rule_of(op)
    assert rule is not None
    return rule.function


def _as_declared(array: Any, value: torch.Tensor) -> jax.Array:
    array = jax.numpy.asarray(array)
    if array.size == 0 < value.numel():  # statistics that eager saves on devices, not on a CPU
        raise Unsupported("Its rule computes one result less than PyTorch has on this device.")
    if array.shape != tuple(value.shape):
        raise TypeError(f"its result has shape {array.shape}, in PyTorch {tuple(value.shape)}")
    dtype = dtypes.to_numpy(value.dtype)
    if jax.numpy.iscomplexobj(array) and not jax.numpy.issubdtype(dtype, jax.numpy.complexfloating):
        raise TypeError(f"its result is complex, in PyTorch {value.dtype}")
    return array.astype(dtype)
