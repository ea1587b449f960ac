"""Attention's kernels in Pallas's interpreter, against eager; and which calls they are for."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax.extend.mlir import ir
from torch import Tensor

from tests.backend.graphs import traced
from tests.like_eager.rules import run, to_jax, to_torch
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules.tpu import _flash_attention as kernels
from xla_dynamo.backend.lowering.rules.tpu import attention
from xla_dynamo.backend.runtime import topology

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
INF = float("inf")


def random_mask(*shape: int) -> Tensor:
    """The first query sees no key."""
    mask = torch.rand(shape) > 0.4
    mask[..., 0, :] = False
    return mask


# [batch, heads, queries, features], [key heads, keys], causal, mask
CASES: dict[str, tuple[tuple[int, ...], tuple[int, int], bool, Tensor | None]] = {
    "one block": ((1, 2, 128, 32), (2, 128), False, None),
    "causal, several blocks, shared keys": ((1, 4, 640, 64), (2, 640), True, None),
    "odd lengths, causal": ((2, 1, 200, 40), (1, 300), True, None),
    "bool mask": ((2, 2, 130, 64), (1, 300), False, random_mask(1, 1, 130, 300)),
    "mask of keys": ((2, 2, 140, 64), (2, 200), False, torch.rand(2, 1, 1, 200) > 0.5),
    "mask of each head": ((1, 2, 32, 256), (2, 64), False, random_mask(1, 2, 32, 64)),
    "added mask": ((1, 2, 32, 64), (2, 48), False, torch.randn(1, 2, 32, 48)),
    "added mask, causal": ((1, 2, 40, 64), (2, 40), True, torch.randn(1, 1, 40, 40)),
    "added infinities": (
        *((1, 2, 32, 64), (2, 48), False),
        torch.where(random_mask(1, 2, 32, 48), 0, -INF),
    ),
}
SLOW = ("causal, several blocks, shared keys", "bool mask", "mask of keys", "odd lengths, causal")


def both(name: str, dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], list[Tensor]]:
    """Output, log-sum-exp and gradients of kernels and of eager."""
    (batch, heads, queries, features), (key_heads, keys), is_causal, mask = CASES[name]
    q, grad = torch.randn(2, batch, heads, queries, features).to(dtype)
    k, v = torch.randn(2, batch, key_heads, keys, features).to(dtype)
    call = kernels.Call(
        *(batch, heads, key_heads, queries, keys, features),
        mask=None if mask is None else tuple(mask.shape),
        is_causal=is_causal,
        scale=1 / math.sqrt(features),
        precision=jax.lax.Precision.HIGHEST,
        interpret=True,
    )
    arrays = to_jax(q), to_jax(k), to_jax(v)
    given = None if mask is None else to_jax(mask)
    out, lse = kernels.forward(call, *arrays, given)
    grads = kernels.backward(call, to_jax(grad), *arrays, out, lse, given)
    shared = [x.repeat_interleave(heads // key_heads, 1) for x in (k, v)]
    wide = [x.double().requires_grad_() for x in (q, *shared)]
    want = F.scaled_dot_product_attention(*wide, attn_mask=_as_one(mask, is_causal, queries, keys))
    wanted = list(torch.autograd.grad(want, wide, grad.double()))
    for at in (1, 2):
        wanted[at] = wanted[at].unflatten(1, (key_heads, -1)).sum(2)
    return [to_torch(x) for x in (out, *grads)], [want, *wanted]


def _as_one(mask: Tensor | None, is_causal: bool, queries: int, keys: int) -> Tensor | None:
    """The mask in float64 or bool, with what a causal attention does not see."""
    if mask is not None and mask.is_floating_point():
        mask = mask.double()
    if not is_causal:
        return mask
    seen = torch.ones(queries, keys).tril().bool()
    return seen if mask is None else torch.where(seen, mask, -INF)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES]
)
def test_kernels(name: str) -> None:
    for got, want in zip(*both(name), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


def test_16_bits_accumulate_in_32() -> None:
    for got, want in zip(*both("one block", torch.bfloat16), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=0.02, atol=0.02)


def capped_by_torch(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, cap: float
) -> Tensor:
    keys, values = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.tanh(q @ keys.mT * scale / cap) * cap
    return scores.masked_fill(~mask, -INF).softmax(-1).nan_to_num() @ values


def capped_cases() -> tuple[list[Tensor], Tensor, Tensor]:
    """Queries, keys and values, heads that share keys; the first query sees none."""
    q, grad = torch.randn(2, 1, 4, 140, 32)
    k, v = torch.randn(2, 1, 2, 200, 32)
    return [q, k, v], random_mask(1, 1, 140, 200), grad


@pytest.mark.parametrize("interpret", [False, True], ids=["products", "kernel"])
def test_capped_scores(interpret: bool) -> None:
    operands, mask, grad = capped_cases()
    leaves = [x.double().requires_grad_() for x in operands]
    wanted = capped_by_torch(*leaves, mask, 0.7, 1.5)
    gradients = torch.autograd.grad(wanted, leaves, grad.double())
    if interpret:
        arrays = [to_jax(x) for x in operands]
        with lowering_for(Target("tpu", attention="kernel")):
            call = attention._capped(*arrays, to_jax(mask), 0.7, 1.5)
        call = dataclasses.replace(call, interpret=True)
        out, lse = kernels.forward(call, *arrays, to_jax(mask))
        grads = kernels.backward(call, to_jax(grad), *arrays, out, lse, to_jax(mask))
        got = [to_torch(x) for x in (out, *grads)]
    else:
        inputs = [x.clone().requires_grad_() for x in operands]
        result = torch.ops.xla_dynamo.capped_attention(*inputs, mask, 0.7, 1.5)[0]
        got = [result, *torch.autograd.grad(result, inputs, grad)]
    for x, y in zip(got, (wanted, *gradients), strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=1e-5)


@pytest.mark.tpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("chosen", "length"), [("auto", 512), ("auto", 256), ("xla", 512)])
def test_programs_of_capped_scores(chosen: str, length: int, dtype: torch.dtype) -> None:
    """Long ones are kernels, which a TPU's compiler takes, forward and backward."""
    q, mask = torch.empty(1, 2, length, 64, dtype=dtype), torch.ones(length, length).bool()
    lse, mask = torch.empty(1, 2, length), mask[None, None]
    ops = torch.ops.xla_dynamo
    forward, backward = ops.capped_attention.default, ops.capped_attention_backward.default
    for op, args, count in ((forward, (q, q, q), 1), (backward, (q, q, q, q, q, lse), 2)):
        module = traced(lambda *a, op=op: op(*a, 1.0, 30.0), *args, mask)
        body = body_of(fx.calls(module.graph)[0], Target("tpu", attention=chosen))
        assert isinstance(body, Body) is (chosen == "auto" and length >= 512)
        if isinstance(body, Body):
            assert body.text.count("@tpu_custom_call") == count
            with jax_adapter.new_context():
                parsed = ir.Module.parse(body.text)
            assert topology.compile(parsed, "v6e:2x2")[0].code > 0


def struct(*shape: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    ("chosen", "shape", "dtype", "dropout", "is_kernel"),
    [
        ("auto", (1, 2, 512, 64), np.float32, 0.0, True),
        ("auto", (1, 2, 256, 64), np.float32, 0.0, False),
        ("kernel", (1, 2, 16, 64), np.float32, 0.0, True),
        ("xla", (1, 2, 512, 64), np.float32, 0.0, False),
        ("kernel", (1, 2, 512, 64), np.float64, 0.0, False),
        ("kernel", (1, 2, 512, 64), np.float16, 0.0, False),
        ("kernel", (1, 2, 512, 64), np.float32, 0.1, False),
        ("kernel", (1, 2, 512, 8), np.float32, 0.0, False),
        ("kernel", (1, 2, 0, 64), np.float32, 0.0, False),
    ],
)
def test_which_calls_are_kernels(
    chosen: str, shape: tuple[int, ...], dtype: Any, dropout: float, is_kernel: bool
) -> None:
    x = struct(*shape, dtype=dtype)
    with lowering_for(Target("tpu", attention=chosen)):
        call = attention.kernel_call(x, x, x, dropout, True, None, None)
    assert (call is not None) is is_kernel


@pytest.mark.parametrize("op", [FORWARD, BACKWARD])
def test_programs_hold_the_kernels(op: Any) -> None:
    """Lowered for a TPU, with a mask of fewer dimensions than the scores."""
    q, k = torch.randn(1, 4, 512, 64), torch.randn(1, 2, 640, 64)
    mask = torch.ones(640).bool().expand(512, 640)
    args = (q, k, k) if op is FORWARD else (q, q, k, k, q, torch.randn(1, 4, 512), 0.0, False)
    module = traced(lambda *a: op(*a[:-1], attn_mask=a[-1]), *args, mask)
    node = fx.calls(module.graph)[0]
    for chosen, count in (("auto", 1 if op is FORWARD else 2), ("xla", 0)):
        body = body_of(node, Target("tpu", attention=chosen))
        assert isinstance(body, Body)
        assert body.text.count("tpu_custom_call") == count


@pytest.mark.tpu
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("op", [FORWARD, BACKWARD])
def test_a_tpu_s_compiler_takes_bfloat16(op: Any, precision: str) -> None:
    """Whatever the precision of float32 is: Mosaic refuses another one for 16 bits."""
    q, lse = torch.empty(1, 2, 512, 64, dtype=torch.bfloat16), torch.empty(1, 2, 512)
    args = (q, q, q) if op is FORWARD else (q, q, q, q, q, lse)
    module = traced(lambda *a: op(*a, 0.0, True), *args)
    body = body_of(fx.calls(module.graph)[0], Target("tpu", matmul_precision=precision))
    assert isinstance(body, Body)
    with jax_adapter.new_context():
        parsed = ir.Module.parse(body.text)
    assert topology.compile(parsed, "v5e:2x2")[0].code > 0


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_short_attention_computes_its_weights_anew(dtype: torch.dtype, masked: bool) -> None:
    q, grad = torch.randn(2, 1, 4, 5, 8).to(dtype)
    k, v = torch.randn(2, 1, 2, 6, 8).to(dtype)
    mask = random_mask(1, 1, 5, 6) if masked else None
    out, lse = run(FORWARD, q, k, v, 0.0, not masked, attn_mask=mask)
    args = (grad, q, k, v, out.to(dtype), lse, 0.0, not masked)
    want = run(BACKWARD, *args, attn_mask=mask)
    with lowering_for(Target("tpu")):
        got = run(BACKWARD, *args[:5], torch.full_like(lse, math.nan), *args[6:], attn_mask=mask)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("dtype", "features", "are_kept"),
    [(torch.bfloat16, 32, False), (torch.float32, 8, False), (torch.float32, 32, True)],
)
def test_only_small_weights_live_from_forward_to_backward(
    dtype: torch.dtype, features: int, are_kept: bool
) -> None:
    """XLA computes equal expressions once, and keeps the result, unless a barrier is between."""
    q, lse = torch.randn(1, 2, 64, features).to(dtype), torch.randn(1, 2, 64)
    module = traced(BACKWARD, q, q, q, q, q, lse, 0.0, True)
    body = body_of(fx.calls(module.graph)[0], Target("tpu"))
    assert isinstance(body, Body)
    assert ("stablehlo.optimization_barrier" not in body.text) == are_kept
