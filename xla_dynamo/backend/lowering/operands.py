"""Operands that eager PyTorch refuses: whether it does, and its own reason.

Shape inference promotes dtypes or ignores them: it has a dtype for the product of float32 and
bfloat16, an order for complex numbers, and a shape for a product and a larger summand. XLA would
compute something. So where operands look unusual, eager is asked, once for each signature: it runs
the op on ones (pointwise ops), on zeros of the same shapes, or on nothing (random ops, whose ranges
and parameters it checks all the same). The tables only say when to ask; what eager takes is
lowered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph.torch_private import no_modes

from .registry import Refusal

aten = torch.ops.aten

_FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
_COMPLEX = frozenset({torch.complex64, torch.complex128})
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_NUMBERS = _FLOATS | _COMPLEX | _INTEGERS
_ORDERED = _FLOATS | _INTEGERS
# Eager is not asked about other dtypes (float8, uint16): its CPU lacks ops that XLA has for them.
_COMMON = _NUMBERS | {torch.bool}


# What eager surely takes: operands at these positions of one dtype, which is one of these.
_ROWS: tuple[tuple[frozenset[torch.dtype], tuple[int, ...], str], ...] = (
    (_NUMBERS, (0, 1), "mm bmm mv dot vdot matmul"),
    (_NUMBERS, (0, 1, 2), "addmm addmv addbmm baddbmm linear convolution _trilinear"),
    (_NUMBERS, (0,), "trace"),
    (_COMMON, (0, 1), "linalg_cross isclose allclose complex polar"),
    (_COMMON, (0, 2), "index_put _index_put_impl masked_scatter"),
    (_COMMON, (0, 3), "index_add index_copy scatter scatter_add"),
    (_ORDERED, (0, 3), "index_reduce scatter_reduce"),
    (
        *(_ORDERED, (0,)),
        "sort topk kthvalue mode median nanmedian max min amax amin aminmax argmax argmin cummax "
        "cummin bucketize max_pool2d_with_indices max_pool3d_with_indices hash_tensor",
    ),
    (_ORDERED, (0, 1), "searchsorted"),
    (
        *(_FLOATS, (0,)),
        "_softmax _log_softmax _safe_softmax logcumsumexp nansum var std var_mean std_mean "
        "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d "
        "adaptive_max_pool3d max_unpool2d max_unpool3d im2col col2im glu upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
        "_upsample_nearest_exact2d _upsample_nearest_exact3d reflection_pad1d reflection_pad2d "
        "reflection_pad3d segment_reduce bernoulli hardswish log_sigmoid_forward "
        "rrelu_with_noise rrelu_with_noise_functional",
    ),
    (
        *(_FLOATS, (0, 1)),
        "_cdist_forward _prelu_kernel _weight_norm_interface grid_sampler_2d grid_sampler_3d "
        "mse_loss smooth_l1_loss huber_loss soft_margin_loss _softmax_backward_data "
        "_log_softmax_backward_data heaviside",
    ),
    (
        *(_FLOATS, (0, 2)),
        "nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward",
    ),
    (_FLOATS, (0, 1, 2), "binary_cross_entropy native_group_norm"),
    (_FLOATS, (0, 2, 3), "native_layer_norm"),
    (
        *(_FLOATS, (0, 1, 2, 3, 4)),
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
        "_batch_norm_with_update _batch_norm_with_update_functional",
    ),
    (_INTEGERS | {torch.bool}, (0,), "bitwise_not"),
    (_INTEGERS | {torch.bool}, (0, 1), "bitwise_and bitwise_or bitwise_xor gcd lcm"),
)
_USUAL = {
    f"aten::{name}": (dtypes, positions)
    for dtypes, positions, names in _ROWS
    for name in names.split()
}

# Scripts for torch_xla may multiply float32 by bfloat16; the result has the dtype of the first.
_MIXED = frozenset(
    f"aten::{name}"
    for name in (
        *("convolution", "index_add", "index_copy", "linear", "matmul", "mm", "mv"),
        *("native_group_norm", "native_layer_norm"),
    )
)


# Random ops, whose numbers eager checks: an empty range, an end that the dtype cannot hold.
_DRAWS = frozenset(
    f"aten::{name}"
    for name in (
        *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal"),
        *("normal_functional", "randint", "randint_like", "random", "uniform"),
    )
)


# Ops that add a product to a summand, which may be smaller -> the summand, the product's shape.
SUMMANDS: dict[Any, Callable[..., tuple[torch.Tensor | None, Sequence[int]]]] = {
    aten.addmm.default: lambda x, a, b: (x, (a.shape[0], b.shape[1])),
    aten._addmm_activation.default: lambda x, a, b: (x, (a.shape[0], b.shape[1])),
    aten.addmv.default: lambda x, a, b: (x, a.shape[:1]),
    aten.linear.default: lambda a, b, x=None: (x, (*a.shape[:-1], *b.shape[:-1])),
}


def _outgrows(op: Any, args: Sequence[Any]) -> bool:
    """Whether a summand is larger than the product that `op` adds it to, and may be refused."""
    if op not in SUMMANDS:
        return False
    summand, product = SUMMANDS[op](*args)
    if summand is None or summand.dim() == 0:
        return False
    pairs = zip(reversed(summand.shape), reversed(product), strict=False)
    return summand.dim() > len(product) or any(n not in (1, size) for n, size in pairs)


def are_usual(op: Any, dtypes: Set[torch.dtype]) -> bool:
    """Whether `op` surely takes operands of these dtypes: they are one float dtype, or none."""
    known = op in SUMMANDS or op._schema.name in _DRAWS
    return not known and len(dtypes) < 2 and dtypes <= _FLOATS


def refusal(
    op: Any, args: Sequence[Any], kwargs: dict[str, Any], *, mixes_floats: bool = False
) -> str | None:
    """Eager's reason not to compute `op` for such tensors; None if it takes them.

    args, kwargs: as the op takes them; tensors may be fake. Reads shapes and dtypes, no values.
    mixes_floats: what torch_xla computes for floats of several dtypes is taken, too.
    """
    name = op._schema.name
    if _outgrows(op, args):
        return error_of_zeros(op, args, kwargs)
    if name in _DRAWS and (error := _error_of_nothing(op, args, kwargs)) is not None:
        return error
    if name in _USUAL:
        dtypes, positions = _USUAL[name]
        chosen = {args[at].dtype for at in positions if _has_tensor(args, at)}
        if len(chosen) < 2 and chosen <= dtypes:
            return None
        if mixes_floats and name in _MIXED and chosen <= _FLOATS:
            return None
        return error_of_zeros(op, args, kwargs) if chosen <= _COMMON else None
    if torch.Tag.pointwise not in getattr(op, "tags", ()):
        return None
    leaves, structure = pytree.tree_flatten((list(args), kwargs))
    tensors = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)}
    if tensors <= _FLOATS or not tensors <= _COMMON:
        return None
    return _error(op, structure, tuple(_Blank.of(leaf, one=True) for leaf in leaves))


def refused_by_eager(error: str) -> Refusal:
    """The refusal of operands for which eager PyTorch raises `error`."""
    text = " ".join(error.split()).rstrip(".")
    remedy = "Pass operands that eager PyTorch takes."
    return Refusal(f"Eager PyTorch refuses these operands: {text}.", remedy, kind="eager")


def error_of_zeros(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """What eager raises where tensors hold zeros; None if nothing. Asked once a signature."""
    leaves, structure = pytree.tree_flatten((list(args), kwargs))
    return _error(op, structure, tuple(_Blank.of(leaf) for leaf in leaves))


def _error_of_nothing(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """What eager raises where no element is drawn, by which no generator advances."""
    sized = zip(op._schema.arguments, args, strict=False)
    args = [[0] if argument.name == "size" else value for argument, value in sized]
    named = {name: None if name == "generator" else value for name, value in kwargs.items()}
    leaves, structure = pytree.tree_flatten((args, named))
    empty = [_Blank.of(leaf) for leaf in leaves]
    empty = [leaf if leaf.dtype is None else replace(leaf, given=(0,)) for leaf in empty]
    return _error(op, structure, tuple(empty))


def _has_tensor(args: Sequence[Any], at: int) -> bool:
    return at < len(args) and isinstance(args[at], torch.Tensor)


@dataclass(frozen=True)
class _Blank:
    """An argument of an op: a tensor by its shape, dtype and what it holds; any other by itself."""

    kind: type
    given: Any  # a tensor's shape
    dtype: torch.dtype | None = None
    one: bool = False  # of at most one element, which is 1: integers are not divided by 0

    @classmethod
    def of(cls, leaf: Any, *, one: bool = False) -> _Blank:
        if not isinstance(leaf, torch.Tensor):
            return cls(type(leaf), leaf)  # by the type as well: 1 == True == 1.0
        shape = (min(leaf.numel(), 1),) if one and leaf.dim() else tuple(leaf.shape)
        return cls(torch.Tensor, shape, leaf.dtype, one)

    def make(self) -> Any:
        if self.dtype is not None:
            return torch.full(self.given, int(self.one), dtype=self.dtype, device="cpu")
        return torch.device("cpu") if self.kind is torch.device else self.given


@functools.lru_cache(4096)
def _error(op: Any, structure: Any, leaves: tuple[_Blank, ...]) -> str | None:
    """What eager raises on the CPU for such operands."""
    with no_modes(), torch.no_grad():
        args, kwargs = pytree.tree_unflatten([leaf.make() for leaf in leaves], structure)
        try:
            op(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return str(error)
    return None


def no_cast(given: torch.dtype, wanted: torch.dtype) -> str:
    """Eager's words for a result of a dtype that another cannot hold."""
    names = [
        torch.empty(0, dtype=dtype, device="cpu").type().split(".")[-1] for dtype in (given, wanted)
    ]
    first, second = (name.removesuffix("Tensor") for name in names)
    return f"result type {first} can't be cast to the desired output type {second}"
