"""A user's JAX function, and its gradient, as ops; lowering/rules/jax_calls.py lowers both.

The functions are known by name, as long as they live: `backend.jax_functions` makes them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .registration import op

Shapes = Sequence[tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, eq=False)
class Known:
    """A function of JAX arrays.

    function: arrays to a list of arrays.
    shapes: of its results, for operands.
    run: it, and its gradient, computed on the CPU where an op of it is called outside a program.
    """

    function: Callable[..., list[Any]]
    shapes: Callable[[Sequence[Tensor]], Shapes]
    run: Callable[[Callable[..., list[Any]], Sequence[Tensor]], list[Tensor]]


known: weakref.WeakValueDictionary[str, Known] = weakref.WeakValueDictionary()


def of_name(name: str) -> Known:
    """The function.

    Raises:
        LookupError: it is gone.
    """
    found = known.get(name)
    if found is None:
        raise LookupError(f"the JAX function {name!r} of this program is gone: keep it alive")
    return found


def _fake_call(operands: Sequence[Tensor], name: str) -> list[Tensor]:
    shapes = of_name(name).shapes(operands)
    return [operands[0].new_empty(shape, dtype=dtype) for shape, dtype in shapes]


@op(fake=_fake_call)
def jax_call(operands: Sequence[Tensor], name: str) -> list[Tensor]:
    """The results of the function, one or more."""
    own = of_name(name)
    return own.run(own.function, operands)


def _fake_gradient(operands: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(x) for x in operands if differentiable(x)]


@op(fake=_fake_gradient)
def jax_gradient(operands: Sequence[Tensor], grads: Sequence[Tensor], name: str) -> list[Tensor]:
    """The gradients of the operands that have one, from those of the results that have one."""
    own = of_name(name)
    count = len(operands)

    def gradient(*arrays: Any) -> list[Any]:
        return gradients(own.function, arrays[:count], arrays[count:])

    return own.run(gradient, [*operands, *grads])


def gradients(
    function: Callable[..., list[Any]], operands: Sequence[Any], grads: Sequence[Any]
) -> list[Any]:
    """What `jax_gradient` computes, of arrays: jax.vjp."""
    import jax  # the first function has imported it
    import numpy as np

    places = [i for i, x in enumerate(operands) if jax.numpy.issubdtype(x.dtype, np.inexact)]

    def of_floats(*floats: Any) -> list[Any]:
        filled = list(operands)
        for place, x in zip(places, floats, strict=True):
            filled[place] = x
        results = function(*filled)
        return [x for x in results if jax.numpy.issubdtype(x.dtype, np.inexact)]

    return list(jax.vjp(of_floats, *[operands[i] for i in places])[1](list(grads)))


def differentiable(x: Tensor) -> bool:
    """Whether a tensor of this dtype has a gradient."""
    return x.is_floating_point() or x.is_complex()


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    operands, ctx.name = inputs
    ctx.save_for_backward(*operands)
    ctx.results = [(tuple(x.shape), x.dtype, x.device) for x in output if differentiable(x)]
    ctx.has_gradient = [differentiable(x) for x in output]


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[list[Tensor | None], None]:
    operands = list(ctx.saved_tensors)
    given = [grad for grad, has in zip(grads, ctx.has_gradient, strict=True) if has]
    filled = [
        torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
        for grad, (shape, dtype, device) in zip(given, ctx.results, strict=True)
    ]
    found = iter(torch.ops.xla_dynamo.jax_gradient(operands, filled, ctx.name))
    return [next(found) if differentiable(x) else None for x in operands], None


jax_call.register_autograd(_backward, setup_context=_save)
