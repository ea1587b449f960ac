"""PyTorch's one op for a transformer layer in eval mode is compiled, with eager's numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import xla_dynamo
from xla_dynamo.backend.decompositions.transformer_layers import attention, encoder_layer

aten = torch.ops.aten
BATCH, TIME, WIDTH, HEADS = 2, 5, 16, 4
PADDED = torch.zeros(BATCH, TIME, dtype=torch.bool)
PADDED[1, 3:] = True
CAUSAL = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)
MASKS: dict[str, tuple[Tensor | None, int | None]] = {
    "none": (None, None),
    "positions": (CAUSAL, 0),
    "padding": (PADDED, 1),
    "both": ((CAUSAL | PADDED[:, None, None]).expand(-1, HEADS, -1, -1), 2),
    "of floats": (torch.where(CAUSAL, -torch.inf, 0.0), 0),
}


def _x() -> Tensor:
    return torch.randn(BATCH, TIME, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MASKS)
def test_attention_is_that_of_the_op(name: str) -> None:
    mask, kind = MASKS[name]
    layer, x = nn.MultiheadAttention(WIDTH, HEADS), _x()
    weights = (layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight)
    args = (x, x, x, WIDTH, HEADS, *weights, layer.out_proj.bias, mask)
    with torch.no_grad():
        for averages in (True, False):
            want = aten._native_multi_head_attention(*args, True, averages, kind)
            got = attention(*args, True, averages, kind)
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_layer_is_that_of_the_op(norm_first: bool, activation: str) -> None:
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 32, activation=activation, norm_first=norm_first, batch_first=True
    ).eval()
    of = layer.self_attn
    args = (
        *(_x(), WIDTH, HEADS, of.in_proj_weight, of.in_proj_bias),
        *(of.out_proj.weight, of.out_proj.bias, activation == "gelu", norm_first, 1e-5),
        *(layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias),
        *(layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias),
        *(PADDED, 1),
    )
    with torch.no_grad():
        want = aten._transformer_encoder_layer_fwd(*args)
        torch.testing.assert_close(encoder_layer(*args), want, rtol=1e-5, atol=1e-5)


def test_attention_without_a_mask_is_one_op() -> None:
    """A projection of queries, keys and values at once, and no scores in memory."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True).eval()
    with torch.no_grad(), xla_dynamo.capture() as stages:
        torch.compile(layer, backend="xla")(_x())
    text = stages[0].fx
    assert text.count("target=torch.ops.aten._scaled_dot_product_flash") == 1
    assert text.count("target=torch.ops.aten.linear") == 4


def test_an_encoder_in_eval_mode_is_compiled() -> None:
    """A fallback would be an error here."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True).eval()
    compiled = torch.compile(layer, backend="xla")
    with torch.no_grad():
        for arguments in ({}, {"src_key_padding_mask": PADDED}, {"src_mask": CAUSAL}):
            torch.compiler.reset()
            torch.testing.assert_close(
                compiled(_x(), **arguments), layer(_x(), **arguments), rtol=1e-5, atol=1e-5
            )
