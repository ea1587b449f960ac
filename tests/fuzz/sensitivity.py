"""A program -> how far its results move when the arithmetic rounds differently.

Two correct engines differ in the last digits, and a comparison, a floor or a small difference of
large numbers turns those into anything. What moves in eager itself under noise of a few units in
the last place says nothing about an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .doors import Seen, eager
from .program import Program

_RUNS = 64
_UNITS = (1, 4)  # of the last place, that noise adds or takes: with few, `x == 1` turns in some run
_ALLOWED = 100.0  # times what noise does


class _Noise(TorchDispatchMode):
    """Multiplies what float arithmetic gives by 1 + a few epsilon; data movement stays exact.

    Zeros that a product of matrices gives change their sign, all with an odd `seed` and some with
    an even one: from the one term -0 eager has -0 for mm of (2, 1) by (1, 3) and 0 for the same in
    a batch, since some kernels add to a zero. What subtracts inside, and may come to almost
    nothing, has an error of what it subtracts, or none: logaddexp2(-1, -1) is 0, and 2e-16 in
    eager; the middle of linspace(-1, 1, 11) is -6e-17 in eager's kernel of vectors, 0 in its other.
    Which of 0 and -0 is the greater is the place's, in eager.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.all_zeros = seed % 2 == 1
        self.units = _UNITS[seed // 2 % 2]
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name in _EITHER and result.is_floating_point():
            first, second = torch.broadcast_tensors(*args)
            either = (first == 0) & (second == 0) & (first.signbit() != second.signbit())
            some = torch.randint(0, 2, result.shape, generator=self.generator) == 1
            result.mul_(torch.where(either & (some | self.all_zeros), -1, 1))
        if name in _EXACT or func.is_view:
            return result
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                noise = torch.randint(
                    -self.units, self.units + 1, tensor.shape, generator=self.generator
                ).to(tensor.dtype)
                noise *= torch.finfo(tensor.dtype).eps
                tensor.mul_(1 + noise)
                if name in _DIFFERENCES:
                    tensor.add_(noise)
                    nothing = (tensor.abs() <= noise.abs()) & ((noise < 0) | self.all_zeros)
                    tensor.masked_fill_(nothing, 0)
                if name in _PRODUCTS:
                    changes = (tensor == 0) & ((noise < 0) | self.all_zeros)
                    tensor.mul_(torch.where(changes, -1, 1))
        return result


# Ops whose float results are some of the numbers given to them.
_MOVEMENT = (
    "abs arange argsort cat clone constant_pad_nd copy cummax cummin clamp clamp_min clamp_max "
    "diag_embed empty empty_like empty_strided eye fill flip full full_like gather index "
    "index_copy index_fill index_put index_select kthvalue lift_fresh masked_fill "
    "masked_scatter max maximum amax amin median min minimum neg new_empty new_full new_ones "
    "new_zeros ones ones_like randint relu repeat roll scatter select_backward slice_backward "
    "sort stack take _to_copy topk tril triu where zero zeros zeros_like floor ceil round trunc "
    "sign _unsafe_view reflection_pad1d replication_pad1d detach resize scalar_tensor set "
    "repeat_interleave fmax fmin threshold aminmax"
)
_EXACT = frozenset(_MOVEMENT.split())

# Ops that give one of two numbers.
_EITHER = frozenset({"maximum", "minimum", "fmax", "fmin"})

# Ops that sum products.
_SUMS = (
    "addbmm addmm addmv baddbmm bmm convolution convolution_backward dot mm mv vdot "
    "_scaled_dot_product_flash_attention_for_cpu"
)
_PRODUCTS = frozenset(_SUMS.split())

# Ops that give a difference of numbers of about 1, at some places.
_NEAR_ZERO = "_log_softmax digamma lgamma linspace logaddexp logaddexp2 logcumsumexp logsumexp"
_DIFFERENCES = frozenset(_NEAR_ZERO.split())


def moves(program: Program, expected: Seen) -> Seen:
    """The largest differences from `expected` in eager runs with noise, in its layout."""
    runs = []
    for seed in range(_RUNS):
        with _Noise(seed):
            runs += eager([program])
    return Seen(
        [_spread(x, [run.results[i] for run in runs]) for i, x in enumerate(expected.results)],
        [_spread(x, [run.inputs[i] for run in runs]) for i, x in enumerate(expected.inputs)],
        [
            None if x is None else _spread(x, [run.gradients[i] for run in runs])
            for i, x in enumerate(expected.gradients)
        ],
    )


def _spread(expected: Tensor, others: Sequence[Tensor | None]) -> Tensor:
    """What a difference may be; infinite where noise decides whether a number is finite."""
    spread = torch.zeros(expected.shape, dtype=torch.float64)
    for other in others:
        if other is None or other.shape != expected.shape:
            return torch.full(expected.shape, torch.inf, dtype=torch.float64)
        moved = difference(other, expected)
        spread = torch.maximum(spread, moved)
    return spread * _ALLOWED


def difference(actual: Tensor, expected: Tensor) -> Tensor:
    """Absolute, in float64; 0 where both are the same infinity or nan, else inf where one is."""
    a, b = actual.double(), expected.double()
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs().nan_to_num(torch.inf, torch.inf))
