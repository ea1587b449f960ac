"""The ops that XLA:CPU leaves to PyTorch's own kernels, where those are faster.

A call costs 0.1 to 0.2 ms, so it is for work that is larger. `options={"cpu_kernels": "xla"}` makes
programs of XLA's own alone. The times of convolutions, products and attention are in
`host_convolutions` and `host_products`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import torch
from torch.fx import Node
from torch.fx.node import map_arg

import xla_dynamo.backend.ops  # noqa: F401  (the tables name its ops)
from xla_dynamo.backend.graph import kernel_calls

from . import dtypes, host_convolutions, host_products
from .registry import Target

aten = torch.ops.aten
Pays = Callable[[Sequence[Any], Any], bool]  # of a call's arguments and result
_LEAST_WORK = 5e6  # products of an LSTM
_LEAST_NORMALIZED = 2**16
_LEAST_SORTED, _LEAST_ACCUMULATED, _LEAST_OF_ANGLES = 2**12, 2**16, 2**17


def is_left(node: Node, target: Target) -> bool:
    """Whether PyTorch's kernel computes this node in a program for `target`."""
    return not node.kwargs and _pays(node, target, PAYS)


def is_worth_leaving_for(node: Node, target: Target) -> bool:
    """Whether a graph is split at this node for PyTorch's kernel."""
    return any(_pays(node, target, table) for table in (PAYS, PAYS_BETWEEN, PRODUCTS_BETWEEN))


def has_worthy(calls: Iterable[Node], target: Target) -> bool:
    """Whether one of `calls` is worth a split by itself."""
    return any(is_worth_leaving_for(node, target) for node in calls)


def is_left_between(node: Node, target: Target) -> bool:
    """Whether PyTorch's kernel computes this node of a graph that is split."""
    return is_worth_leaving_for(node, target) or _pays(node, target, PAYS_BESIDE)


def saved_between(node: Node, target: Target) -> float:
    """Nanoseconds that PyTorch's kernel of a product takes less, where a graph is split for it."""
    first = FIRST_FACTORS.get(node.target) if target.kernels == "torch" else None
    return 0.0 if first is None else host_products.saved_between(first, *values(node))


def _pays(node: Node, target: Target, table: Mapping[Any, Pays]) -> bool:
    pays = table.get(node.target) if target.kernels == "torch" else None
    return pays is not None and pays(*values(node))


def values(call: Node) -> tuple[Sequence[Any], Any]:
    """What was traced as a call's arguments, and as its result."""
    return map_arg(call.args, lambda operand: operand.meta["val"]), call.meta["val"]


def as_function(node: Node) -> Callable[..., list[jax.Array]]:
    """A function of the node's tensor operands: the call of PyTorch's kernel."""
    values = node.meta["val"]
    values = [values] if isinstance(values, torch.Tensor) else values
    results = [
        jax.ShapeDtypeStruct(tuple(value.shape), dtypes.to_numpy(value.dtype))
        for value in values
        if value is not None
    ]
    text = kernel_calls.encode(node.target, node.args, lambda value: isinstance(value, Node))
    call = jax.ffi.ffi_call(kernel_calls.TARGET, results)
    return lambda *operands: list(call(*operands, call=text))


def _batch_norm_backward(args: Sequence[Any], out: Any) -> bool:
    x, is_training = args[1], args[7]
    return is_training and x.dim() > 2 and x.dtype in (torch.float32, torch.float64)


def _has(least: int, args: Sequence[Any], out: Any) -> bool:
    """Of an op whose first operand is what is sorted, or added up."""
    return args[0].numel() >= least


def _is_long(args: Sequence[Any], out: Any) -> bool:
    """Of a function of each element."""
    return out.numel() >= _LEAST_OF_ANGLES


def _norm(at: int, args: Sequence[Any], out: Any) -> bool:
    """Of a norm, or its gradient, whose operand `at` is what is normalized."""
    x = args[at]
    is_float = x.dtype in (torch.float32, torch.float64)
    return is_float and x.dim() > 1 and x.numel() >= _LEAST_NORMALIZED


def _lstm(args: Sequence[Any], out: Any) -> bool:
    x, _, _, w_ih, w_hh, *_, w_hr, _ = args
    return _is_lstm_left(x, w_ih, w_hh, w_hr)


def _lstm_backward(args: Sequence[Any], out: Any) -> bool:
    x, _, w_ih, w_hh, _, _, w_hr, *_ = args[3:]
    return _is_lstm_left(x, w_ih, w_hh, w_hr)


def _is_lstm_left(x: torch.Tensor, w_ih: torch.Tensor, w_hh: torch.Tensor, w_hr: Any) -> bool:
    """The same for a layer and its gradient, which reads what the layer has left."""
    if w_hr is not None or x.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    return x.shape[0] * x.shape[1] * (w_ih.numel() + w_hh.numel()) >= _LEAST_WORK


# By op of aten, which operand is the first factor of a product.
FIRST_FACTORS: dict[Any, int] = {
    aten.linear.default: 0,
    aten.mm.default: 0,
    aten.bmm.default: 0,
    aten.addmm.default: 1,
    aten.baddbmm.default: 1,
}

# By op of aten, where PyTorch's kernel takes less CPU time than XLA's program.
PAYS: dict[Any, Pays] = {
    aten.convolution.default: host_convolutions.forward,
    aten.convolution_backward.default: host_convolutions.backward,
    **{op: partial(host_products.product, at) for op, at in FIRST_FACTORS.items()},
}

# What XLA:CPU sorts for, by a call of a function for each comparison.
_SORTS = (
    aten.sort.default,
    aten.sort.stable,
    aten.kthvalue.default,
    aten.median.default,
    aten.median.dim,
    aten.nanmedian.default,
    aten.nanmedian.dim,
)

# What XLA:CPU has no vector code for: it takes 7 to 29 ns for each element, PyTorch 0.5 to 1.5.
_ANGLES = (
    aten.acos.default,
    aten.asin.default,
    aten.atan.default,
    aten.atan2.default,
    aten.cos.default,
    aten.sin.default,
    aten.tan.default,
)

# Where no program calls it: a mask, a scale and the order of a sort are keywords; and oneDNN's LSTM
# has results of sizes that it alone knows.
#
# Sorting, on a Cascade Lake: PyTorch 0.3 ms for 4096 elements of float32, 4.4 for 50,257 (a
# vocabulary), XLA:CPU 1.4 and 17.8; a median 0.09 and 1.0, 1.9 and 18.7. Running sums of 64 x 1024:
# 0.08, 1.1; of 131,072 in a row 0.2, 2.4.
PAYS_BETWEEN: dict[Any, Pays] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: host_products.attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (
        host_products.attention_backward
    ),
    torch.ops.xla_dynamo.lstm_layer.default: _lstm,
    torch.ops.xla_dynamo.lstm_layer_backward.default: _lstm_backward,
    **dict.fromkeys(_SORTS, partial(_has, _LEAST_SORTED)),
    aten.cumsum.default: partial(_has, _LEAST_ACCUMULATED),
    **dict.fromkeys(_ANGLES, _is_long),
}

# Of float32, where a program that calls MKL would share the cores with its threads.
PRODUCTS_BETWEEN: dict[Any, Pays] = {
    op: partial(host_products.product_between, at) for op, at in FIRST_FACTORS.items()
}

# For which no program is left by itself, but beside other kernels.
#
# Batch norm's gradient: XLA:CPU's program takes 131 us for 32,000 elements, 269 for 131,000, 2,300
# for 1.6 million (8 images, 64 channels of 56x56); PyTorch's kernel, with the program that is left
# before it, 82, 147 and 1,160. Group norm, on a Cascade Lake: PyTorch 26 us for 66,000 elements,
# 199 for 524,000, 2,170 for 4.2 million, XLA:CPU 426, 593 and 5,050; the gradient 38, 308 and
# 4,120, XLA:CPU 530, 902 and 7,340. On an Emerald Rapids, log_softmax: PyTorch 0.15 ms for
# 1024 x 256, 0.3 for 512 x 1000, 1.2 for 256 x 8192, XLA:CPU 0.41, 0.64 and 1.7; layer norm of
# 512 x 768 and of 2048 x 768, after a product: 0.4 and 1.6, XLA:CPU 1.4 and 3.4; its gradient of
# 1024 x 512: 0.6, XLA:CPU 2.2.
PAYS_BESIDE: dict[Any, Pays] = {
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_group_norm.default: partial(_norm, 0),
    aten.native_group_norm_backward.default: partial(_norm, 1),
    aten.native_layer_norm.default: partial(_norm, 0),
    aten.native_layer_norm_backward.default: partial(_norm, 1),
    aten._log_softmax.default: partial(_norm, 0),
    aten._log_softmax_backward_data.default: partial(_norm, 0),
    aten._softmax.default: partial(_norm, 0),
    aten._softmax_backward_data.default: partial(_norm, 0),
}
