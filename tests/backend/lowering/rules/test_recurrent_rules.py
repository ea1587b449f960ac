from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

from tests.like_eager.rules import run
from xla_dynamo.backend.lowering.registry import RULES

ops = torch.ops.xla_dynamo
TOLERANCES = {
    torch.float32: (1e-4, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.bfloat16: (0.05, 0.05),
    torch.float16: (0.01, 0.01),
}
STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6


def layer(
    kind: str, dtype: torch.dtype, proj: int = 0, bias: bool = True, steps: int = STEPS
) -> tuple:
    """The forward and backward ops of a kind of layer, and the arguments up to its flags."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    hidden = proj or HIDDEN
    rows = HIDDEN * {"lstm": 4, "gru": 3}.get(kind, 1)
    states = [normal(BATCH, hidden)] + ([normal(BATCH, HIDDEN)] if kind == "lstm" else [])
    biases = [normal(rows), normal(rows)] if bias else [None, None]
    weights = [normal(rows, INPUT), normal(rows, hidden), *biases]
    if kind == "lstm":
        weights.append(normal(proj, HIDDEN) if proj else None)
    name = kind if kind in ("lstm", "gru") else "rnn"
    forward, backward = (getattr(ops, f"{name}_layer{end}").default for end in ("", "_backward"))
    return forward, backward, [normal(steps, BATCH, INPUT), *states, *weights]


def flags(kind: str, reverse: bool) -> tuple[bool, ...]:
    return (kind == "relu", reverse) if kind in ("tanh", "relu") else (reverse,)


def backward_arguments(kind: str, inputs: list, outputs: tuple, unused: int | None) -> list:
    states = 2 if kind == "lstm" else 1
    gradients = [torch.randn_like(output) for output in outputs[: 1 + states]]
    gradients = [None if i == unused else gradient for i, gradient in enumerate(gradients)]
    weights, reserve = inputs[1 + states :], outputs[1 + states :]
    return [*gradients, *inputs[:2], *weights, outputs[0], *reserve]


def assert_agrees(op: Any, dtype: torch.dtype, *args: Any) -> None:
    rtol, atol = TOLERANCES[dtype]
    for want, got in zip(op(*args), run(op, *args), strict=True):
        torch.testing.assert_close(got.to(want.dtype), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("dtype", "reverse"), [*((dtype, False) for dtype in TOLERANCES), (torch.float64, True)]
)
@pytest.mark.parametrize(
    ("kind", "proj", "bias"),
    [
        ("lstm", 0, True),
        ("lstm", 2, False),
        ("gru", 0, True),
        ("gru", 0, False),
        ("tanh", 0, True),
        ("relu", 0, False),
    ],
)
def test_scans_agree_with_the_eager_ops(kind, proj, bias, reverse, dtype):
    forward, backward, inputs = layer(kind, dtype, proj, bias)
    inputs = [i if i is None else i / 2 for i in inputs]
    assert_agrees(forward, dtype, *inputs, *flags(kind, reverse))
    outputs = forward(*inputs, *flags(kind, reverse))
    for unused in (None, 0, 1):
        arguments = backward_arguments(kind, inputs, outputs, unused)
        assert_agrees(backward, dtype, *arguments, *flags(kind, reverse))


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_one_step(kind):
    forward, backward, inputs = layer(kind, torch.float32, steps=1)
    assert_agrees(forward, torch.float32, *inputs, *flags(kind, False))
    outputs = forward(*inputs, *flags(kind, False))
    arguments = backward_arguments(kind, inputs, outputs, None)
    assert_agrees(backward, torch.float32, *arguments, *flags(kind, False))


def test_lstm_with_a_wide_cell_state():
    forward, backward, inputs = layer("lstm", torch.bfloat16)
    inputs[2] = inputs[2].float()
    outputs = forward(*inputs, False)
    assert outputs[2].dtype == outputs[4].dtype == torch.float32
    assert_agrees(forward, torch.bfloat16, *inputs, False)
    arguments = backward_arguments("lstm", inputs, outputs, None)
    assert_agrees(backward, torch.bfloat16, *arguments, False)


@pytest.mark.parametrize("kind", ["lstm", "gru", "relu"])
def test_program_does_not_grow_with_the_sequence(kind):
    def equations(steps: int) -> int:
        forward, _, inputs = layer(kind, torch.float32, steps=steps)
        arrays = [None if i is None else i.numpy() for i in inputs]
        traced = jax.make_jaxpr(lambda *a: RULES[forward].function(*a, *flags(kind, False)))
        return str(traced(*arrays)).count(" = ")

    assert equations(5) == equations(500)


def lstm_in_jax(x, h0, c0, w_ih, w_hh, b_ih, b_hh):
    """What one would write by hand, for jax.grad to differentiate."""

    def step(carry, projected):
        h, c = carry
        i, f, g, o = jnp.split(projected + h @ w_hh.T, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h0, c0), x @ w_ih.T + b_ih + b_hh)[1]


def cost(function: Callable[..., Any], *args: Any) -> tuple[float, int]:
    compiled = jax.jit(function).lower(*args).compile()
    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    return cost["bytes accessed"], memory.temp_size_in_bytes


def test_training_step_is_as_lean_as_by_hand():
    sizes = [(64, 32, 128), (32, 128), (32, 128), (512, 128), (512, 128), (512,), (512,)]
    arrays = [jax.ShapeDtypeStruct(size, np.float32) for size in sizes]
    gradient = jax.ShapeDtypeStruct((64, 32, 128), np.float32)

    def by_hand(grad, *args):
        return jax.vjp(lstm_in_jax, *args)[1](grad)

    def by_rules(grad, x, h0, c0, w_ih, w_hh, b_ih, b_hh):
        forward, backward = (
            RULES[op.default].function for op in (ops.lstm_layer, ops.lstm_layer_backward)
        )
        out, _, _, gates, cells = forward(x, h0, c0, w_ih, w_hh, b_ih, b_hh, None, False)
        weights = w_ih, w_hh, b_ih, b_hh, None
        gradients = backward(grad, None, None, x, h0, *weights, out, gates, cells, False)
        return *gradients[:6], gradients[5]

    ours, theirs = cost(by_rules, gradient, *arrays), cost(by_hand, gradient, *arrays)
    assert ours[0] <= 1.05 * theirs[0]
    assert ours[1] <= 1.05 * theirs[1]
