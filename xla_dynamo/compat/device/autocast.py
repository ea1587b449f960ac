"""The casts of `torch.autocast("xla")`: stock PyTorch has the switch but no casts for the device.

Ops are cast as on CUDA: matmuls and convolutions to the autocast dtype, ops that lose accuracy to
float32, the rest to the widest dtype of their arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.values.torch_private import KeySet, parse_key, without_keys

# (op, args, kwargs) -> the dtype that floating-point arguments are cast to; None: they are not.
Rule = Callable[[Any, Any, Any], torch.dtype | None]

LOWER = """
_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm
mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
"""

FLOAT32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss
cosine_embedding_loss nll_loss nll_loss2d nll_loss_nd hinge_embedding_loss kl_div l1_loss
smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
logsumexp norm.Scalar norm.ScalarOpt_dim upsample_nearest1d _upsample_nearest_exact1d
upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d
upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
upsample_bicubic2d _upsample_bicubic2d_aa
"""

# Computed in float32, unless the caller names a dtype.
FLOAT32_DEFAULT = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
"""

WIDEST = """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat
stack
"""

_KEY = KeySet(parse_key("AutocastXLA"))
_libraries: list[torch.library.Library] = []


@functools.cache
def install() -> None:
    """Register the casts, once for the process."""
    others = torch.library.Library("_", "IMPL", "AutocastXLA")
    others.fallback(torch.library.fallthrough_kernel)
    library = torch.library.Library("aten", "IMPL", "AutocastXLA")
    _libraries.extend((others, library))
    for names, rule in (
        (LOWER, _lower),
        (FLOAT32, _float32),
        (FLOAT32_DEFAULT, _float32_default),
        (WIDEST, _widest),
    ):
        for name in names.split():
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            library.impl(name, functools.partial(_call, op, rule))


def _call(op: Any, rule: Rule, *args: Any, **kwargs: Any) -> Any:
    dtype = rule(op, args, kwargs)
    if dtype is not None:
        args, kwargs = pytree.tree_map(lambda item: _cast(item, dtype), (args, kwargs))
    with without_keys(_KEY):
        return op(*args, **kwargs)


def _castable(item: Any) -> bool:
    """float64 and numbers of other kinds are never cast."""
    return (
        isinstance(item, torch.Tensor)
        and item.is_floating_point()
        and item.dtype is not torch.float64
        and item.device.type == "xla"
    )


def _cast(item: Any, dtype: torch.dtype) -> Any:
    return item.to(dtype) if _castable(item) and item.dtype is not dtype else item


def _lower(op: Any, args: Any, kwargs: Any) -> torch.dtype:
    return torch.get_autocast_dtype("xla")


def _float32(op: Any, args: Any, kwargs: Any) -> torch.dtype:
    return torch.float32


def _float32_default(op: Any, args: Any, kwargs: Any) -> torch.dtype | None:
    index = [argument.name for argument in op._schema.arguments].index("dtype")
    given = args[index] if index < len(args) else kwargs.get("dtype")
    return torch.float32 if given is None and _castable(args[0]) else None


def _widest(op: Any, args: Any, kwargs: Any) -> torch.dtype:
    dtypes = {item.dtype for item in pytree.tree_leaves((args, kwargs)) if _castable(item)}
    lower = torch.get_autocast_dtype("xla")
    return torch.float32 if dtypes - {lower} else lower
