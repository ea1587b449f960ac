"""What PyTorch's calls cost beside a program of XLA:CPU's, in nanoseconds: see small_parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

import xla_dynamo.backend.ops  # noqa: F401  (the table names its ops)
from xla_dynamo.backend.graph import fx, memory_layout
from xla_dynamo.backend.lowering import host_convolutions, host_kernels

aten = torch.ops.aten
_PROGRAM, _CALL = 400_000.0, 8_000.0  # whatever the size
_OTHER_ORDER = 0.5  # for each element of an operand or a result that has channels last
_LOOP = 0.4  # for each element that a program reads and writes, whatever it computes
_LONGER_BY_TANH = 1.2  # for each that PyTorch's GELU approximates

# Ops that take operands in any order of memory: the nanoseconds that each element takes longer in
# PyTorch's kernel than in a program's loop. Between what a Cascade Lake and an Emerald Rapids take:
# a program begins in 250 us on one and 500 on the other, layer norm takes 0.1 longer and 1.1 less.
LONGER: dict[Any, float] = {
    aten._log_softmax.default: -0.4,
    aten._log_softmax_backward_data.default: -0.2,
    aten._native_batch_norm_legit_functional.default: 0.0,
    aten._native_batch_norm_legit_no_training.default: 0.25,
    aten._softmax.default: -0.3,
    aten._softmax_backward_data.default: -0.1,
    aten._to_copy.default: 0.5,
    aten._unsafe_view.default: 0.0,
    aten.add.Tensor: 0.2,
    aten.arange.default: 1.0,
    aten.cat.default: 0.0,
    aten.clone.default: 0.1,
    aten.convolution.default: -0.5,
    aten.convolution_backward.default: -1.0,
    aten.div.Scalar: 0.2,
    aten.div.Tensor: 0.3,
    aten.embedding.default: 0.0,
    aten.embedding_dense_backward.default: 0.0,
    aten.fill.Scalar: 0.1,
    aten.full_like.default: 0.1,
    aten.gelu.default: 0.2,
    aten.gelu_backward.default: 0.0,
    aten.hardtanh.default: 0.2,
    aten.le.Scalar: 0.9,
    aten.leaky_relu.default: 0.2,
    aten.max_pool2d_with_indices.default: 3.5,
    aten.max_pool2d_with_indices_backward.default: 0.2,
    aten.mean.default: -0.1,
    aten.mean.dim: 0.1,
    aten.mul.Scalar: 0.2,
    aten.mul.Tensor: 0.2,
    aten.native_group_norm.default: -1.0,
    aten.native_group_norm_backward.default: -1.0,
    aten.native_layer_norm.default: -0.5,
    aten.native_layer_norm_backward.default: -0.6,
    aten.neg.default: 0.2,
    aten.nll_loss_backward.default: 0.2,
    aten.nll_loss_forward.default: 0.0,
    aten.ones_like.default: 0.1,
    aten.pow.Tensor_Scalar: 0.2,
    aten.relu.default: 0.1,
    aten.rsub.Scalar: 0.3,
    aten.scalar_tensor.default: 0.0,
    aten.sigmoid.default: 0.0,
    aten.silu.default: 0.1,
    aten.silu_backward.default: 0.2,
    aten.sub.Tensor: 0.3,
    aten.sum.default: -0.1,
    aten.sum.dim_IntList: 0.1,
    aten.tanh.default: 0.1,
    aten.tanh_backward.default: 0.1,
    aten.upsample_nearest2d.default: 4.0,
    aten.upsample_nearest2d_backward.default: 0.7,
    aten.where.self: 3.6,
    aten.zeros.default: 0.1,
    aten.zeros_like.default: 0.1,
    torch.ops.xla_dynamo.hardswish.default: 0.3,
    torch.ops.xla_dynamo.hardswish_backward.default: 0.3,
    torch.ops.xla_dynamo.hardtanh_backward.default: 0.3,
    torch.ops.xla_dynamo.leaky_relu_backward.default: 0.3,
    torch.ops.xla_dynamo.relu_backward.default: 0.3,
    **dict.fromkeys(host_kernels.FIRST_FACTORS, 0.0),
}
# The same of images with channels_last, for which PyTorch has vector code. XLA:CPU's times are 5.4,
# 5.9, 1.5 and 1.1 of PyTorch's for 524,288 elements, on an Emerald Rapids.
_LONGER_OF_CHANNELS_LAST: dict[Any, float] = {
    aten.max_pool2d_with_indices.default: -1.5,
    aten.max_pool2d_with_indices_backward.default: -1.0,
    aten.upsample_nearest2d.default: -0.2,
    aten.upsample_nearest2d_backward.default: 0.0,
}
_CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
_LEAST_WORK = 1e7  # of a product that is slower, if PyTorch's kernel is the slower one
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


def program(ends: Iterable[Node]) -> float:
    """What a program costs besides its loops; ends: its operands and results."""
    others = [node.meta["val"].numel() for node in ends if _has_channels_last(node)]
    return _PROGRAM + _OTHER_ORDER * sum(others)


def longer(calls: Sequence[Node]) -> float:
    """How much longer PyTorch takes for calls than a program that has begun."""
    computing = [call for call in calls if not fx.gives_views(call.target)]
    saved = _LOOP * _elements(computing[0]) if len(computing) == 1 else 0.0
    return sum(map(_nanoseconds, computing)) - saved


def _nanoseconds(call: Node) -> float:
    """How much longer PyTorch takes for this call, as part of a program that runs anyway."""
    if any(tensor.dtype not in _DTYPES for tensor in _tensors(call)) or _has_default_dtype(call):
        return math.inf
    if _is_long_product(call) or _is_long_convolution(call):
        return math.inf
    by_tanh = call.kwargs.get("approximate") == "tanh"
    is_last = any(map(_has_channels_last, call.all_input_nodes))
    table = _LONGER_OF_CHANNELS_LAST if is_last else LONGER
    each = table.get(call.target, LONGER[call.target]) + (_LONGER_BY_TANH if by_tanh else 0.0)
    return _CALL + each * _elements(call)


def _has_channels_last(node: Node) -> bool:
    return memory_layout.has_channels_last(node.meta.get("val"))


def _is_long_product(call: Node) -> bool:
    """Whether it may matter who computes a product."""
    result, first = call.meta["val"], host_kernels.FIRST_FACTORS.get(call.target)
    if first is None:
        return False
    factor: Any = call.args[first]
    work = result.numel() * factor.meta["val"].shape[-1]
    return bool(result.dtype == torch.bfloat16 or work >= _LEAST_WORK)


def _is_long_convolution(call: Node) -> bool:
    if call.target not in _CONVOLUTIONS:
        return False
    return not host_convolutions.is_small(*host_kernels.values(call))


def _has_default_dtype(call: Node) -> bool:
    """Whether it makes floats of the dtype that is PyTorch's default at the time."""
    is_told = call.all_input_nodes or call.kwargs.get("dtype") is not None
    return not is_told and call.meta["val"].is_floating_point()


def _elements(call: Node) -> int:
    return max(tensor.numel() for tensor in _tensors(call))


def _tensors(call: Node) -> list[Tensor]:
    results: Any = call.meta["val"]
    given = [results, *(node.meta["val"] for node in call.all_input_nodes)]
    return fx.tensors(given)
