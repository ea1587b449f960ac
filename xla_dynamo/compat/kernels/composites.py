"""Composite ops (linear, matmul, attention) recorded as one op each, with gradients of their own.

PyTorch decomposes them before a device sees them: a linear layer is five ops forward and nine
backward, a matmul six and eight, and each costs as much to record as any. A kernel for dispatch key
XLA makes PyTorch keep them. They are decomposed when the trace is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from xla_dynamo.backend import options
from xla_dynamo.backend.decompositions import fused_attention as attention
from xla_dynamo.backend.decompositions import matmul_backward as product_gradients
from xla_dynamo.backend.ops.dropout_attention import dropout_attention
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.compat.recording.op_forms import RECORDED_COMPOSITES
from xla_dynamo.compat.values import torch_private
from xla_dynamo.compat.values.torch_private import Key, KeySet
from xla_dynamo.compat.values.values import Leaf

aten = torch.ops.aten

_LINEAR = aten.linear.default
_ATTENTION = aten.scaled_dot_product_attention.default
# Of tensors of so many dimensions, each is torch.stack along one; its parts would be two ops each.
_STACKS = {aten.vstack.default: (1, 0), aten.column_stack.default: (1, 1)}
_PARTS = Key.CompositeImplicitAutograd  # where PyTorch takes composites apart
# Nested tensors have kernels for linear and matmul, so PyTorch's autograd has them undivided there.
_UNDIVIDED = KeySet(Key.AutogradNestedTensor) | KeySet(Key.Functionalize)


def register_composites(library: torch.library.Library, autograd: torch.library.Library) -> None:
    """Register the kernels for dispatch keys XLA and AutogradXLA."""
    for op in RECORDED_COMPOSITES:
        name = op._schema.name.removeprefix("aten::")
        library.impl(name, _unreached)
        autograd.impl(name, _composite_kernel(op))
    library.impl("scaled_dot_product_attention", _unreached)
    autograd.impl("scaled_dot_product_attention", _attention)
    autograd.impl("matmul_backward", _matmul_backward)
    for op, (rank, dim) in _STACKS.items():
        name = op._schema.name.removeprefix("aten::")
        library.impl(name, _unreached)
        autograd.impl(name, _stacking(op, rank, dim))


def _composite_kernel(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        x = args[0]
        # The composite's gradient is for real numbers.
        vector = op is _LINEAR and args[1].dim() != 2  # a vector of weights: a sum of products
        if x.is_complex() or vector or is_traced(x):
            return op._op_dk(_PARTS, *args)
        return op.redispatch(_UNDIVIDED, *args)

    return kernel


def _stacking(op: Any, rank: int, dim: int) -> Callable[[Sequence[Tensor]], Tensor]:
    def kernel(tensors: Sequence[Tensor]) -> Tensor:
        if all(x.dim() == rank and x.shape == tensors[0].shape for x in tensors):
            return torch.stack(list(tensors), dim)
        return op._op_dk(_PARTS, tensors)

    return kernel


def is_traced(x: Tensor) -> bool:
    """Whether somebody wants the parts of composites: forward mode, torch.func, a tracer."""
    if forward_ad._current_level >= 0 or not torch_private.is_functional(x):
        return True
    return type(torch_private.unwrapped(x)) is not Leaf


def _matmul_backward(grad: Any, x: Any, y: Any, mask: Any) -> Any:
    # PyTorch has no derivative of this one: where one is wanted, its parts are recorded.
    if torch.is_grad_enabled() and any(t.requires_grad for t in (grad, x, y)):
        return product_gradients.matmul_backward(grad, x, y, mask)
    with torch_private.below_autograd():
        return aten.matmul_backward.default(grad, x, y, mask)


def _unreached(*args: Any, **kwargs: Any) -> Any:
    """Leaves take every op before their backend's kernels are looked for."""
    raise AssertionError("an op on an xla tensor did not reach the recorder")


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As one op where it is one on a CPU, so that torch.compile's passes apply to it."""
    operands = query, key, value, attn_mask
    if not is_traced(query):
        if attention.is_fused(*operands, dropout_p, enable_gqa):
            return attention.fused_attention(*operands, is_causal, scale)
        if dropout_p and attention.drops_in_kernel(*operands, dropout_p, enable_gqa, _kernels()):
            return dropout_attention(*operands, dropout_p, is_causal, scale)[0]
    given = (*operands, dropout_p, is_causal)
    return _ATTENTION._op_dk(_PARTS, *given, scale=scale, enable_gqa=enable_gqa)


def _kernels() -> str:
    """The option `attention`; "xla" where dropout has no kernel."""
    return options.parse(None, None).attention if default_platform() == "tpu" else "xla"
