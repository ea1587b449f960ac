"""Keep F.interpolate one ATen op, and one more for its gradient.

AOTAutograd traces under PyTorch's Python dispatcher, which decomposes the upsampling ops: a
bilinear resize becomes four gathers, its gradient four scatters, and uint8 images are off by one.
The pass exchanges the call for `interpolate`, which calls the ATen op without that dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph
from torch.nn import functional
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph.edit import exchange_targets
from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.graph.torch_private import (
    TorchDispatchMode,
    enable_python_dispatcher,
    nn_functions,
    no_python_dispatcher,
)
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten

# By mode, spatial dimensions and antialias.
_OPS: dict[tuple[str, int, bool], torch._ops.OpOverload] = {
    ("nearest", 1, False): aten.upsample_nearest1d.default,
    ("nearest", 2, False): aten.upsample_nearest2d.default,
    ("nearest", 3, False): aten.upsample_nearest3d.default,
    ("nearest-exact", 1, False): aten._upsample_nearest_exact1d.default,
    ("nearest-exact", 2, False): aten._upsample_nearest_exact2d.default,
    ("nearest-exact", 3, False): aten._upsample_nearest_exact3d.default,
    ("linear", 1, False): aten.upsample_linear1d.default,
    ("bilinear", 2, False): aten.upsample_bilinear2d.default,
    ("bilinear", 2, True): aten._upsample_bilinear2d_aa.default,
    ("trilinear", 3, False): aten.upsample_trilinear3d.default,
    ("bicubic", 2, False): aten.upsample_bicubic2d.default,
    ("bicubic", 2, True): aten._upsample_bicubic2d_aa.default,
}
# The ops for whose gradients shape inference takes symbolic sizes.
_INFERRED = frozenset(
    {
        aten.upsample_nearest2d.default,
        aten._upsample_nearest_exact2d.default,
        aten._upsample_bilinear2d_aa.default,
    }
)


def keep_interpolate(graph: Graph, context: Context) -> bool:
    """Exchange the calls of F.interpolate, and of the ATen ops that it calls."""
    return exchange_targets(graph, _REPLACEMENTS)


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """torch.nn.functional.interpolate; Dynamo has checked its arguments."""
    rank = input.dim() - 2
    op = _OPS.get((mode, rank, antialias))
    scales: list[Any] = [None] * rank
    if scale_factor is None:
        sizes = list(size) if isinstance(size, (list, tuple)) else [size] * rank
    else:
        is_list = isinstance(scale_factor, (list, tuple))
        factors = list(scale_factor) if is_list else [scale_factor] * rank
        sizes = [torch.sym_int(n * s) for n, s in zip(input.shape[2:], factors, strict=True)]
        if not recompute_scale_factor:
            scales = [float(factor) for factor in factors]
    # mode="area" is a pooling; PyTorch's shape inference of the ops fails for an empty batch.
    symbolic = any(map(is_symbolic, (*input.shape, *sizes)))
    if op is None or 0 in input.shape or not _differentiable(op, input, symbolic):
        return functional.interpolate(
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    settings = () if mode.startswith("nearest") else (bool(align_corners),)
    with no_python_dispatcher(), _BelowAutograd():
        return op(input, sizes, *settings, *scales)


def _differentiable(op: torch._ops.OpOverload, input: Tensor, symbolic: bool) -> bool:
    """Whether PyTorch can infer the shape of the gradient, if one is needed."""
    return not symbolic or op in _INFERRED or not (input.requires_grad and torch.is_grad_enabled())


class _BelowAutograd(TorchDispatchMode):
    """Brings the Python dispatcher back below autograd: it infers symbolic shapes."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with enable_python_dispatcher():
            return func(*args, **(kwargs or {}))


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """torch.nn.functional.upsample_bilinear."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def _undecomposed(call: Callable[..., Tensor], op: torch._ops.OpOverload) -> Callable[..., Tensor]:
    """`call`, which calls the ATen op `op`, without the dispatcher that decomposes it."""

    def resize(*args: Any, **kwargs: Any) -> Tensor:
        x: Tensor = args[0] if args else kwargs["input" if "input" in kwargs else "self"]
        symbolic = any(map(is_symbolic, (*x.shape, *pytree.tree_leaves((args, kwargs)))))
        # The overloads that take a list of scales take no symbolic sizes.
        is_possible = not symbolic or call is op
        if 0 in x.shape or not is_possible or not _differentiable(op, x, symbolic):
            return call(*args, **kwargs)
        with no_python_dispatcher(), _BelowAutograd():
            return call(*args, **kwargs)

    return resize


def _calls(op: torch._ops.OpOverload) -> list[Any]:
    """What a program may call to get the ATen op."""
    name = op._schema.name.removeprefix("aten::")
    packet = getattr(aten, name)
    return [packet, packet.default, packet.vec, getattr(nn_functions, name)]


_REPLACEMENTS: dict[object, Callable[..., Tensor]] = {
    **{call: _undecomposed(call, op) for op in _OPS.values() for call in _calls(op)},
    # Their arguments are the first ones of interpolate.
    **dict.fromkeys(
        (functional.interpolate, functional.upsample, functional.upsample_nearest), interpolate
    ),
    functional.upsample_bilinear: upsample_bilinear,
}
