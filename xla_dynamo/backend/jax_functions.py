"""A JAX function, or a kernel written in Pallas, as a function of torch tensors.

    @xla_dynamo.jax_function
    def gelu(x):  # JAX arrays
        return jax.nn.gelu(x)

It is part of the program, on lazy tensors and within torch.compile, and its gradient is jax.vjp's.
Called elsewhere, on CPU tensors, it runs alone, by JAX on the CPU.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend import ops as _ops  # noqa: F401  (registers the op)
from xla_dynamo.backend.ops import jax_calls

_numbers = itertools.count(1)


def jax_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of JAX arrays, which gives one or a tuple of several, for torch tensors.

    It takes tensors by position, at least one; what is no tensor is bound before, with
    functools.partial. It may not read values: it is traced, once for each combination of shapes
    and dtypes. Where no tensor has a dtype of 64 bits, neither has JAX.

    Results are one tensor, or a tuple of several, with the shapes and dtypes that JAX gives, on the
    device of the first operand. What the function raises when it is traced is raised by the call.
    """

    def listed(*arrays: Any) -> list[Any]:
        result = function(*arrays)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    own = jax_calls.Known(listed, functools.partial(_shapes, listed), _run)
    named = getattr(function, "__qualname__", type(function).__name__)
    name = f"{named} {next(_numbers)}"
    jax_calls.known[name] = own

    def call(*operands: Tensor) -> Any:
        results = torch.ops.xla_dynamo.jax_call(operands, name)
        return results[0] if len(results) == 1 else tuple(results)

    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(function, attribute):
            setattr(call, attribute, getattr(function, attribute))
    vars(call)["known"] = own  # lives as long as this
    return call


def _shapes(function: Callable[..., list[Any]], operands: Sequence[Tensor]) -> jax_calls.Shapes:
    import jax

    from xla_dynamo.backend import jax_adapter
    from xla_dynamo.backend.lowering import dtypes

    structs = [
        jax.ShapeDtypeStruct(tuple(map(int, x.shape)), dtypes.to_numpy(x.dtype)) for x in operands
    ]
    wide = any(jax_adapter.is_wide(struct.dtype) for struct in structs)
    with jax_adapter.apart(wide=wide):
        results = jax.eval_shape(function, *structs)
    return [(tuple(x.shape), dtypes.to_torch(x.dtype)) for x in results]


def _run(function: Callable[..., list[Any]], operands: Sequence[Tensor]) -> list[Tensor]:
    import jax

    from xla_dynamo.backend import jax_adapter
    from xla_dynamo.backend.runtime import pjrt, transfers

    device = pjrt.device("cpu")
    arrays = [transfers.upload(x.contiguous(), device) for x in operands]
    with jax_adapter.apart(wide=any(jax_adapter.is_wide(x.dtype) for x in arrays)):
        results = jax.jit(function)(*arrays)
        return [transfers.download(x) for x in results]
