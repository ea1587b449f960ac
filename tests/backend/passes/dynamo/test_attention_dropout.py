"""Which attention that drops weights is one op, and what both ways in make of it on the CPU."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import xla_dynamo
from tests.backend.graphs import context
from xla_dynamo.backend.graph.torch_private import FakeTensorMode
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.dynamo import attention_dropout
from xla_dynamo.backend.tpu_cost import lower_training_step
from xla_dynamo.compat.kernels import composites


def is_one_op(shape: tuple[int, ...], p: float = 0.1, chosen: str = "auto", **how: Any) -> bool:
    with FakeTensorMode():
        query = torch.empty(shape, **how)
        made = torch.fx.experimental.proxy_tensor.make_fx(attention_dropout._attention)(
            chosen, query, query, query, None, p
        )
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
        assert attention_dropout.keep_attention_dropout(graph(), given) is is_exchanged


def test_vmap_takes_it_apart() -> None:
    x = torch.randn(3, 1, 2, 16, 32)
    attend = torch.vmap(
        lambda x: attention_dropout._attention("kernel", x, x, x, None, 0.5), randomness="different"
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
        return attention_dropout._attention("kernel", q, k, v, None, 0.25)

    given = operands()
    with xla_dynamo.observe() as seen:
        check(attend(*given), given, 0.25)
    torch.manual_seed(3)
    first, second = attend(*given), attend(*given)
    torch.manual_seed(3)
    assert not torch.equal(first, second)
    torch.testing.assert_close(attend(*given), first, rtol=0, atol=0)
    assert not seen.fallbacks


def test_checkpoints_draw_the_same_mask_again() -> None:
    @torch.compile(backend="xla")
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def inner(*given: Tensor) -> Tensor:
            return attention_dropout._attention("kernel", *given, None, 0.25)

        out = torch.utils.checkpoint.checkpoint(inner, q, k, v, use_reentrant=False)
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
    assert "DropoutAttention" in type(out.grad_fn).__name__ or "dropout_attention" in str(
        out.grad_fn
    )
    check(out, given, 0.25)
    other = F.scaled_dot_product_attention(*given, dropout_p=0.25)
    assert not torch.equal(out, other)


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
