"""Attention on the lazy device: eager's numbers, and the fused op with its gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo
from tests.like_eager.lazy import assert_lockstep

SHAPE = (2, 4, 8, 16)
FEW_HEADS = (2, 2, 8, 16)

CALLS: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "plain": (F.scaled_dot_product_attention, []),
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), []),
    "scale": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), []),
    "bool mask": (F.scaled_dot_product_attention, [torch.rand(8, 8) > 0.3]),
    "float mask": (F.scaled_dot_product_attention, [torch.randn(2, 1, 8, 8)]),
}


def step(call: Callable[..., Tensor], inputs: list[Tensor], device: str) -> list[Tensor]:
    tensors = [x.to(device).requires_grad_(x.is_floating_point()) for x in inputs[:3]]
    out = call(*tensors, *(x.to(device) for x in inputs[3:]))
    loss = F.cross_entropy(out.reshape(-1, 16), torch.arange(64, device=device) % 16)
    loss.backward()
    return [loss.detach().cpu(), *(x.grad.cpu() for x in tensors if x.grad is not None)]


def captured(call: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[list[Tensor], str]:
    with xla_dynamo.capture() as stages:
        results = step(call, inputs, "xla")
    return results, "\n".join(stage.fx for stage in stages)


@pytest.mark.parametrize("name", CALLS)
def test_attention_is_eagers_and_saves_its_weights(name: str) -> None:
    call, extra = CALLS[name]
    inputs = [*(torch.randn(SHAPE) for _ in range(3)), *extra]
    results, text = captured(call, inputs)
    for ours, theirs in zip(results, step(call, inputs, "cpu"), strict=True):
        torch.testing.assert_close(ours, theirs)
    # The passes of torch.compile's joint graph: weights are saved, log_softmax is not written.
    assert "xla_dynamo.attention_backward.default" in text
    assert "xla_dynamo.nll_loss_row_gradient.default" in text
    assert "_log_softmax" not in text


def test_grouped_queries() -> None:
    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    inputs = [torch.randn(shape) for shape in (SHAPE, FEW_HEADS, FEW_HEADS)]
    results, text = captured(call, inputs)
    for ours, theirs in zip(results, step(call, inputs, "cpu"), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "attention_backward" in text


@pytest.mark.parametrize(
    "call",
    [
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v[..., :3]),
        lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, q @ k.mT),
    ],
)
def test_what_the_fused_op_does_not_take_is_decomposed(call: Callable[..., Tensor]) -> None:
    assert_lockstep(call, *(torch.randn(SHAPE) for _ in range(3)))


def test_a_second_derivative_with_the_kernel_that_has_one() -> None:
    def second(x: Tensor) -> Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = F.scaled_dot_product_attention(x, x, x)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    x = torch.randn(SHAPE, dtype=torch.float64)
    ours = second(x.to("xla").requires_grad_()).cpu()
    torch.testing.assert_close(ours, second(x.requires_grad_()))
