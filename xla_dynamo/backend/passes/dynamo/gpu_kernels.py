"""Keep PyTorch from calling kernels of a GPU's libraries, which are no plain ops.

For tensors of a GPU, attention and the cells of recurrent networks become ops that only CUDA has.
The pass exchanges the calls for functions that do there what PyTorch does on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.nn import functional as F

from xla_dynamo.backend.decompositions.fused_attention import fused_attention, is_fused
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten


def avoid_gpu_kernels(graph: Graph, context: Context) -> bool:
    """Exchange the calls on tensors of a GPU in Dynamo's graph."""
    found = [node for node in graph.nodes if node.target in _CALLS and _on_gpu(node)]
    for node in found:
        node.target = _CALLS[node.target]
    return bool(found)


def _on_gpu(node: Node) -> bool:
    value = node.meta.get("example_value")
    value = value[0] if isinstance(value, tuple) else value
    return isinstance(value, Tensor) and value.device.type == "cuda"


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if is_fused(query, key, value, attn_mask, dropout_p, enable_gqa):
        return fused_attention(query, key, value, attn_mask, is_causal, scale)
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    parts = aten._scaled_dot_product_attention_math.default
    return parts(*given, scale=scale, enable_gqa=enable_gqa)[0]


def _lstm_cell(x: Tensor, state: Any, *weights: Any) -> Any:
    hidden, cell = state
    gates = _gates(x, hidden, *weights)
    into, forget, new, out = (torch.add(*parts) for parts in zip(*gates, strict=True))
    cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _gru_cell(x: Tensor, hidden: Tensor, *weights: Any) -> Tensor:
    (r, z, n), (r_hidden, z_hidden, n_hidden) = _gates(x, hidden, *weights)
    new = (n + (r + r_hidden).sigmoid() * n_hidden).tanh()
    return (hidden - new) * (z + z_hidden).sigmoid() + new


def _gates(
    x: Tensor,
    hidden: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What the input and what the state give to each gate."""
    count = len(w_ih) // hidden.shape[-1]
    of_input = F.linear(x, w_ih, b_ih).chunk(count, -1)
    return of_input, F.linear(hidden, w_hh, b_hh).chunk(count, -1)


_CALLS = {
    F.scaled_dot_product_attention: _attention,
    torch.lstm_cell: _lstm_cell,
    torch.gru_cell: _gru_cell,
}
