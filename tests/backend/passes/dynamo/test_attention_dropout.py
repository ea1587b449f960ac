"""Which attention that drops weights is one op, and what both ways in make of it on the CPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import xla_dynamo
from tests.backend.graphs import context
from xla_dynamo.backend.graph.torch_private import FakeTensorMode
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.dynamo.attention_dropout import attention, keep_attention_dropout
from xla_dynamo.backend.tpu_cost import lower_training_step
from xla_dynamo.compat.kernels import composites


def is_one_op(shape: tuple[int, ...], p: float = 0.1, chosen: str = "auto", **how: Any) -> bool:
    with FakeTensorMode():
        query = torch.empty(shape, **how)
        attend = lambda x: attention(x, x, x, None, p, kernels=chosen)  # noqa: E731
        made = make_fx(attend)(query)
    return any("dropout_attention" in str(node.target) for node in made.graph.nodes)


def test_long_attention_is_one_op() -> None:
    assert is_one_op((1, 2, 512, 64))
    assert is_one_op((1, 2, 512, 64), dtype=torch.bfloat16)
    assert is_one_op((1, 2, 16, 64), chosen="kernel")


def test_other_attention_is_pytorch_s() -> None:
    assert not is_one_op((1, 2, 256, 64))
    assert not is_one_op((1, 2, 512, 64), p=0.0)
    assert not is_one_op((1, 2, 512, 64), p=1.0)
    assert not is_one_op((1, 2, 512, 16))
    assert not is_one_op((2, 512, 64))
    assert not is_one_op((1, 2, 512, 64), dtype=torch.float64)
    assert not is_one_op((1, 1, 2**17 + 1, 32))


def test_calls_are_exchanged_on_tpus_only() -> None:
    def graph() -> torch.fx.Graph:
        made = torch.fx.Graph()
        query = made.placeholder("query")
        made.output(made.call_function(F.scaled_dot_product_attention, (query,) * 3))
        return made

    tpu, xla = Target("tpu"), Target("tpu", attention="xla")
    for target, is_exchanged in ((tpu, True), (xla, False), (Target("cpu"), False)):
        given = dataclasses.replace(context(), target=target)
        assert keep_attention_dropout(graph(), given) is is_exchanged


def test_vmap_takes_it_apart() -> None:
    x = torch.randn(3, 1, 2, 16, 32)
    attend = torch.vmap(
        lambda x: attention(x, x, x, None, 0.5, kernels="kernel"), randomness="different"
    )
    assert attend(x).shape == x.shape


def operands(device: str = "cpu") -> list[Tensor]:
    """Values that give the weights back: each key's is a unit vector."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 2, 24, 32, device=device)
    v = torch.eye(24, 32, device=device).expand(2, 2, 24, 32).clone()
    return [x.requires_grad_() for x in (q, k, v)]


def check(out: Tensor, given: list[Tensor], p: float) -> None:
    """The op's result, and its gradients, are those of the weights that can be read off it."""
    grad = torch.linspace(-1, 1, out.numel(), device=out.device).reshape(out.shape)
    got = torch.autograd.grad(out, given, grad)
    q, k, v = (x.detach().cpu().requires_grad_() for x in given)
    keep = (out.detach().cpu() != 0)[..., :24]
    assert abs(keep.float().mean() - (1 - p)) < 0.05
    want = ((q @ k.mT / math.sqrt(32)).softmax(-1) * keep / (1 - p)) @ v
    torch.testing.assert_close(out.cpu(), want)
    wanted = torch.autograd.grad(want, (q, k, v), grad.cpu())
    torch.testing.assert_close([x.cpu() for x in got], list(wanted), rtol=1e-4, atol=1e-5)


def test_torch_compile_has_one_mask_for_forward_and_backward() -> None:
    @torch.compile(backend="xla")
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, None, 0.25, kernels="kernel")

    given = operands()
    xla_dynamo.reset_metrics()
    check(attend(*given), given, 0.25)
    assert not xla_dynamo.counters()
    torch.manual_seed(3)
    first, second = attend(*given), attend(*given)
    torch.manual_seed(3)
    assert not torch.equal(first, second)
    torch.testing.assert_close(attend(*given), first, rtol=0, atol=0)


def test_checkpoints_draw_the_same_mask_again() -> None:
    @torch.compile(backend="xla")
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def inner(*given: Tensor) -> Tensor:
            return attention(*given, None, 0.25, kernels="kernel")

        out = checkpoint(inner, q, k, v, use_reentrant=False)
        assert isinstance(out, Tensor)
        return out

    given = operands()
    check(attend(*given), given, 0.25)


def test_the_lazy_device_has_one_mask_for_forward_and_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(composites, "_kernels", lambda: "kernel")
    given = operands("xla")
    out = F.scaled_dot_product_attention(*given, dropout_p=0.25)
    assert "dropout_attention" in str(out.grad_fn)
    check(out, given, 0.25)
    other = F.scaled_dot_product_attention(*given, dropout_p=0.25)
    assert not torch.equal(out, other)


def test_padded_sizes_draw_the_numbers_of_exact_ones() -> None:
    def attend(q: Tensor, k: Tensor) -> Tensor:
        return attention(q, k, k, None, 0.25, kernels="kernel")

    def run(compiled: Callable[..., Tensor], *given: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(7)
        out = compiled(*given)
        return out, *torch.autograd.grad(out.square().sum(), given)

    exact = torch.compile(attend, backend="xla", dynamic=False)
    padded = torch.compile(lambda *a: attend(*a), backend="xla", options={"bucket": 8})
    count = 0
    for n, m in ((5, 6), (8, 7), (6, 5)):
        given = [torch.randn(2, 2, size, 32, requires_grad=True) for size in (n, m)]
        wanted = run(exact, *given)
        for x in given:
            torch._dynamo.maybe_mark_dynamic(x, 2)
        before = len(xla_dynamo.compiles())
        torch.testing.assert_close(run(padded, *given), wanted, rtol=1e-5, atol=1e-5)
        count += len(xla_dynamo.compiles()) - before
    assert count == 2, "forward and backward, for all sizes of a bucket"


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.unflatten(-1, (3, 2, 64)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)


@pytest.mark.parametrize("autocast", [False, True])
def test_a_training_step_for_a_tpu_holds_the_kernels(autocast: bool) -> None:
    """Forward, and the two of backward; no array has the size of the scores."""
    model = nn.Sequential(nn.Linear(32, 384), Attention())

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                return self.model(x).float().square().mean()

    lowered = lower_training_step(Loss(), {"x": torch.randn(1, 512, 32)})
    text = str(lowered.module)
    assert text.count("@tpu_custom_call") == 3
    assert "512x512" not in text
    assert ("bf16[1,2,512,64]" in text or "1x2x512x64xbf16" in text) is autocast
