"""Products with int8 weights, scaled by channel or by block of inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def quantized_matmul(
    x: torch.Tensor,
    w: torch.Tensor,
    scaler: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    block_size: int = -1,
    int4_weight: bool = False,
    quantize_activation: bool = False,
) -> torch.Tensor:
    """x of (..., inputs) times quantized weights.

    By channel: w (outputs, inputs), scaler and zero_point (outputs,). By block: w (inputs/block,
    block, outputs), scaler and zero_point (inputs/block, outputs).

    Raises:
        ValueError: activations quantized together with blocks.
    """
    if block_size == -1:
        x, x_scale = _quantize(x) if quantize_activation else (x, None)
        out = functional.linear(x, w.to(x.dtype)) * scaler
        if zero_point is not None:
            out = out - x.sum(-1, keepdim=True) * zero_point
        return out if x_scale is None else out * x_scale
    if quantize_activation:
        raise ValueError("quantization of activations goes with quantization by channel only")
    blocks = x.unflatten(-1, (-1, block_size))
    out = torch.einsum("scn,...sc,sn->...n", w.to(x.dtype), blocks, scaler)
    return out if zero_point is None else out - blocks.sum(-1) @ zero_point


def quantized_matmul_int8(
    x: torch.Tensor,
    w: torch.Tensor,
    scalar: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    quant_block_size: torch.Tensor | None = None,
    quantize_activation: bool = False,
    **block_sizes: Any,
) -> torch.Tensor:
    """x (rows, inputs) times int8 weights (outputs, inputs), scaled by channel.

    Raises:
        ValueError: zero points or blocks, which torch_xla's kernel does not have either.
    """
    if zero_point is not None or quant_block_size is not None:
        raise ValueError("quantized_matmul_int8 takes no zero_point and no quant_block_size")
    return quantized_matmul(x, w, scalar, quantize_activation=quantize_activation).to(x.dtype)


def _quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x rounded to 8-bit steps along its last dimension, and the step."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    return (x / scale).round().clamp(-128, 127), scale


class XlaQuantizedLinear(torch.nn.Module):
    """A Linear with int8 weights, without bias."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        is_symmetric: bool = False,
        block_size: int = -1,
        int4_weight: bool = False,
        quantize_activation: bool = False,
    ) -> None:
        super().__init__()
        blocks = input_dim // block_size
        by_channel = block_size == -1
        shape = (output_dim, input_dim) if by_channel else (blocks, block_size, output_dim)
        scale = (output_dim,) if by_channel else (blocks, output_dim)
        self.register_buffer("weight", torch.zeros(shape, dtype=torch.int8))
        self.register_buffer("weight_scaler", torch.zeros(scale))
        self.register_buffer("zero_point", None if is_symmetric else torch.zeros(scale))
        self._how = (block_size, int4_weight, quantize_activation)

    def load_quantized_weight(
        self,
        weight: torch.Tensor,
        weight_scaler: torch.Tensor,
        zero_point: torch.Tensor | None = None,
    ) -> None:
        """Set the weights."""
        self.weight, self.weight_scaler, self.zero_point = weight, weight_scaler, zero_point

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return quantized_matmul(x, self.weight, self.weight_scaler, self.zero_point, *self._how)
