"""The kernels that drop weights: in Pallas's interpreter the products' numbers, and on a TPU's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import pytest
import torch
from jax.extend.mlir import ir
from torch import Tensor
from torch.fx import Node

from tests.backend.graphs import context, traced
from tests.backend.lowering.rules.test_dropout_attention import SEED, case
from tests.like_eager.rules import to_jax, to_torch
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.graph import fx, rng_keys
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules import dropout_attention as plain
from xla_dynamo.backend.lowering.rules.tpu import _flash_attention as kernels
from xla_dynamo.backend.lowering.rules.tpu import attention
from xla_dynamo.backend.passes.joint.functionalize_rng import functionalize_rng
from xla_dynamo.backend.runtime import topology

ops = torch.ops.xla_dynamo
TPU = Target("tpu")
HOW = None, 0.1, True, None


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added"])
def test_kernels_drop_what_the_products_drop(kind: str) -> None:
    """Lengths that are padded, two query heads for a key head, queries that see no key."""
    operands, mask, grad = case()
    given: Tensor | None = mask if kind == "bool" else torch.where(mask, 0.5, -2.0)
    given = given if kind in ("bool", "added") else None
    arrays = [to_jax(x) for x in operands]
    masks = None if given is None else to_jax(given)
    how = masks, 0.3, kind == "causal", None
    seed = jax.device_put(SEED)
    out, lse, _ = plain.dropout_attention.plain(seed, *arrays, *how)
    wanted = plain.dropout_attention_backward.plain(to_jax(grad), *arrays, out, lse, seed, *how)
    with lowering_for(Target("tpu", attention="kernel")):
        call = attention.kernel_call(*arrays, 0.0, how[2], masks, None)
    assert call is not None
    call = dataclasses.replace(call, dropout=0.3, interpret=True, precision="highest")
    masks = attention.mask_of(masks, call)
    got, stats = kernels.forward(call, *arrays, masks, seed)
    grads = kernels.backward(call, to_jax(grad), *arrays, got, stats, masks, seed)
    for ours, theirs in zip((got, stats, *grads), (out, lse, *wanted), strict=True):
        torch.testing.assert_close(to_torch(ours), to_torch(theirs), rtol=1e-4, atol=1e-4)


@pytest.mark.tpu
@pytest.mark.parametrize("where", ["v5e:2x2", "v6e:2x2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tpu_s_compiler_takes_them(dtype: torch.dtype, where: str) -> None:
    """Forward and backward, several blocks; shorter attention is products."""
    for length, are_kernels in ((640, True), (256, False)):
        q, seed = torch.empty(1, 2, length, 64, dtype=dtype), torch.zeros(2, dtype=torch.uint32)
        operands = q, q, q, q, q, torch.empty(1, 2, length), seed
        bodies = (
            random_body(lambda q: ops.dropout_attention(q, q, q, *HOW)[0], q),
            body_of(calls(lambda *a: ops.dropout_attention_backward(*a, *HOW), *operands)[0], TPU),
        )
        for body, count in zip(bodies, (1, 2), strict=True):
            assert isinstance(body, Body)
            assert body.text.count("@tpu_custom_call") == (count if are_kernels else 0)
            with jax_adapter.new_context():
                parsed = ir.Module.parse(body.text)
            assert topology.compile(parsed, where)[0].code > 0


def calls(function: Callable[..., Any], *args: Tensor) -> list[Node]:
    return fx.calls(traced(function, *args).graph)


def random_body(function: Callable[..., Any], *args: Tensor) -> Any:
    """The body of the op that draws."""
    graph = traced(function, *args).graph
    assert functionalize_rng(graph, context())
    (node,) = (each for each in fx.calls(graph) if each.target is rng_keys.call)
    return body_of(node, TPU)
