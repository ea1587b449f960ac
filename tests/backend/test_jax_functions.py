"""JAX functions as functions of torch tensors: in programs of both kinds, and in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas
from torch import Tensor

import xla_dynamo
from xla_dynamo import jax_function
from xla_dynamo.backend.tpu_cost import lower_training_step


@jax_function
def bump(x: jax.Array, width: jax.Array) -> jax.Array:
    return jnp.exp(-jnp.square(x / width))


def bump_of_torch(x: Tensor, width: Tensor) -> Tensor:
    return torch.exp(-((x / width) ** 2))


@jax_function
def parts(x: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Several results, of which one is of integers, and an operand without a gradient."""
    return x[place] * 2, jnp.argsort(x), jnp.sum(x)


def parts_of_torch(x: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x[place] * 2, torch.argsort(x).int(), x.sum()


def tensors(dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(0)
    drawn = torch.randn(3, 4).to(dtype), torch.rand(4).to(dtype) + 1
    return [x.to(device).requires_grad_() for x in drawn]


def results(function: Callable[..., Tensor], operands: list[Tensor]) -> list[Tensor]:
    """The result and the gradients of what is computed of it."""
    result = function(*operands)
    return [result, *torch.autograd.grad(result.sin().sum(), operands)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("way", ["eager", "compile"])
def test_results_and_gradients(way: str, dtype: torch.dtype) -> None:
    function: Any = bump
    if way == "compile":
        function = torch.compile(lambda x, w: bump(x + 1, w) - 1, backend="xla", fullgraph=True)
        got = results(function, tensors(dtype))
        want = results(lambda x, w: bump_of_torch(x + 1, w) - 1, tensors(dtype))
        assert xla_dynamo.counters() == {}
    else:
        got, want = results(bump, tensors(dtype)), results(bump_of_torch, tensors(dtype))
    bound = 0.05 if dtype == torch.bfloat16 else 1e-5
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, rtol=bound, atol=bound)


def test_on_lazy_tensors() -> None:
    import xla_dynamo.compat

    got = results(bump, tensors(torch.float32, "xla"))
    want = results(bump_of_torch, tensors(torch.float32))
    for x, y in zip(got, want, strict=True):
        assert x.device.type == "xla"
        torch.testing.assert_close(x.cpu(), y)
    assert xla_dynamo.counters() == {}


@pytest.mark.parametrize("is_compiled", [False, True])
def test_several_results_and_integers(is_compiled: bool) -> None:
    x, place = torch.randn(6, requires_grad=True), torch.tensor([4, 0], dtype=torch.int32)
    function = torch.compile(parts, backend="xla") if is_compiled else parts
    got, want = function(x, place), parts_of_torch(x, place)
    torch.testing.assert_close(got, want)
    gradients = [torch.autograd.grad(r[0].sum() + r[2] ** 2, x)[0] for r in (got, want)]
    torch.testing.assert_close(*gradients)


def test_a_size_that_changes() -> None:
    compiled = torch.compile(lambda x: bump(x, x + 2), backend="xla", fullgraph=True)
    for size in (3, 5, 7):
        x = torch.rand(size)
        torch.testing.assert_close(compiled(x), bump_of_torch(x, x + 2))


def test_a_kernel_in_pallas() -> None:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] * 2

    @jax_function
    def twice(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pallas.pallas_call(kernel, out_shape=shape, interpret=True)(x)

    x = torch.randn(8, 128)
    torch.testing.assert_close(torch.compile(twice, backend="xla", fullgraph=True)(x), x * 2)


def test_a_kernel_in_pallas_for_a_tpu() -> None:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        third = jax.lax.broadcasted_iota(np.int32, x_ref.shape, 1) // 3  # asks for the TPU's kind
        out_ref[...] = jnp.where(third < 9, x_ref[...] * 2, x_ref[...] + x_ref[...])

    @jax.custom_vjp
    def twice(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pallas.pallas_call(kernel, out_shape=shape)(x)

    twice.defvjp(lambda x: (twice(x), None), lambda _, grad: (grad * 2,))
    called = jax_function(twice)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(128, 128)

        def forward(self, x: Tensor) -> Tensor:
            return called(self.linear(x)).square().mean()

    lowered = lower_training_step(Model(), [torch.randn(8, 128)])
    assert "@tpu_custom_call" in lowered.stablehlo


def test_a_function_that_fails_says_why() -> None:
    @jax_function
    def wrong(x: jax.Array) -> jax.Array:
        return x.reshape(np.int64(7))

    with pytest.raises(Exception, match="reshape"):
        torch.compile(wrong, backend="xla", fullgraph=True)(torch.ones(3))
