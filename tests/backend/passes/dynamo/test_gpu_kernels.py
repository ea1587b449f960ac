"""Calls that PyTorch gives to CUDA's libraries, as plain ops; checked on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph
from torch.nn import functional as F

from tests.backend.graphs import context
from xla_dynamo.backend.graph.torch_private import FakeTensorMode
from xla_dynamo.backend.passes.dynamo import gpu_kernels


def calls(device: str) -> Graph:
    """Attention of a tensor of `device`, as Dynamo records it."""
    graph = Graph()
    query = graph.placeholder("query")
    attention = graph.call_function(F.scaled_dot_product_attention, (query, query, query))
    graph.output((attention,))
    with FakeTensorMode():
        for node in (query, attention):
            node.meta["example_value"] = torch.empty(2, 4, 8, 16, device=device)
    return graph


def test_calls_on_a_gpu_are_exchanged() -> None:
    graph = calls("cuda")
    assert gpu_kernels.avoid_gpu_kernels(graph, context())
    assert [node.target for node in graph.nodes][1] is gpu_kernels._attention
    assert not gpu_kernels.avoid_gpu_kernels(graph, context())


def test_calls_on_a_cpu_stay() -> None:
    assert not gpu_kernels.avoid_gpu_kernels(calls("cpu"), context())


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool mask": {"attn_mask": torch.ones(8, 8).tril().bool()},
    "float mask": {"attn_mask": torch.eye(8, dtype=torch.float64), "scale": 0.3},
    "a mask with a gradient": {"attn_mask": torch.eye(8).double().requires_grad_()},
    "shared heads": {"enable_gqa": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_attention(name: str) -> None:
    options = OPTIONS[name]
    heads = 2 if "enable_gqa" in options else 4
    query = torch.randn(2, 4, 8, 16, dtype=torch.float64)
    key, value = torch.randn(2, 2, heads, 8, 16, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(query, key, value, **options)
    torch.testing.assert_close(gpu_kernels._attention(query, key, value, **options), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("cell", "ours", "pytorchs"),
    [
        (nn.LSTMCell, gpu_kernels._lstm_cell, torch.lstm_cell),
        (nn.GRUCell, gpu_kernels._gru_cell, torch.gru_cell),
    ],
)
def test_cells(
    cell: type[nn.RNNCellBase], ours: Callable[..., Any], pytorchs: Callable[..., Any], bias: bool
) -> None:
    weights = list(cell(3, 5, bias=bias, dtype=torch.float64).parameters())  # type: ignore[call-arg]
    x, (h, c) = torch.randn(4, 3).double(), torch.randn(2, 4, 5).double()
    state: Tensor | tuple[Tensor, Tensor] = (h, c) if cell is nn.LSTMCell else h
    torch.testing.assert_close(ours(x, state, *weights), pytorchs(x, state, *weights))
