"""Say once, on a TPU, how products of float32 are computed there, and how to change that."""

from __future__ import annotations

import torch
from torch.fx import Graph

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.bookkeeping import optional

# What a TPU makes of one product; its unit multiplies bfloat16. Measured: docs/tpu.md.
_WAYS = {
    "highest": "as float32, by six products of bfloat16",
    "high": "to about 16 bits, by three products of bfloat16",
    "medium": "by one product of bfloat16, the TPU's own way",
}
_TORCH = "torch.set_float32_matmul_precision('highest', 'high' or 'medium')"
_LEGACY = "torch_xla.backends.set_mat_mul_precision('highest', 'high' or 'default')"
_NAMES = """
mm bmm addmm baddbmm addbmm mv addmv matmul linear convolution convolution_backward
_scaled_dot_product_flash_attention_for_cpu attention lstm_layer gru_layer rnn_layer
"""
_PRODUCTS = frozenset(_NAMES.split())


@optional(None)
def tell(graph: Graph, context: Context) -> None:
    """Warn, at the first program for a TPU that multiplies float32."""
    if context.target.platform != "tpu" or not _multiplies(graph):
        return
    precision = context.target.matmul_precision
    change = _LEGACY if context.way_in is WayIn.LAZY else _TORCH
    text = (
        f"On this TPU, products of float32 are computed {_WAYS[precision]}. To change it: {change}."
        " Of bfloat16 (torch.autocast, model.to) they are fast in any case."
    )
    metrics.warn_once("precision", text, UserWarning)


def _multiplies(graph: Graph) -> bool:
    for node in fx.calls(graph):
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if name in _PRODUCTS and node.all_input_nodes[0].meta["val"].dtype == torch.float32:
            return True
    return False
