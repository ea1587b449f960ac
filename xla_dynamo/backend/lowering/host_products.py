"""Products of matrices, and attention, for which PyTorch's kernels take less time than XLA:CPU.

Milliseconds of PyTorch's / of XLA's, two cores of a Zen 4 (torch 2.13, jaxlib 0.10.2). XLA turns
the factors of most products of bfloat16 into float32 first:

| rows, weights in bfloat16 | |
|---|---|
| 1, 4096x4096 | 1.7, 12 |
| 4, 1024x1024 | 0.08, 0.48 |
| 128, 512x2048 | 0.65, 1.7 |
| 256, 768x3072 | 3.0, 7.4 |
| 512, 768x768 | 1.6, 5.7 |

A program that is left and begun again costs 0.3 to 1. Where weights are cast in the program, XLA is
faster than here: the step of a GPT of 256 features takes 130, and 140 with all products of 1e8 left
to PyTorch; a layer of BERT-base 110, so 90. float16 is 10 times as slow in PyTorch.

float32 takes the same of both there. On Intel's CPUs MKL has more of AVX-512's units than XLA's
library: two cores of a Cascade Lake, forward; gradients of the left, of the right:

| rows, weights in float32 | |
|---|---|
| 1024, 512x2048 | 8.8, 10; 9.2, 11; 9.3, 13 |
| 2048, 768x768 | 9.8, 13; 9.8, 13; 11, 12 |
| 2048, 768x3072 | 36, 51; 39, 52; 40, 51 |
| 4096, 1024x1024 | 34, 51; 33, 45; 37, 48 |
| batches of 48, 256x64 with 64x256 | 4.0, 9.6 |

A layer of BERT-base there, 16 x 128: a step takes 585, so 485; inference 186, so 159. With batches
of 4 it is the same, for the programs between.

MKL's are the faster ones of many rows with a small matrix, too: microseconds on two cores of an
Emerald Rapids, forward; gradients of the left, of the right:

| 8192, 48x192 | 650, 960; 620, 840; 730, 1490 |
|---|---|
| 8192, 64x64 | 310, 570; 310, 570; 370, 1090 |
| 2048, 96x384 | 1000, 1400; 960, 1460; 980, 1900 |

Without AVX-512 (two cores of a Zen 3) they are faster where they are small, and of batches; the
same microseconds, and those of a batch forward:

| 1024, 256x768 | 2770, 3280; 2980, 3100; 2950, 3410 |
|---|---|
| 512, 256x1024 | 1840, 2080; 1900, 2160; 2250, 2250 |
| 16, 512x1024 | 200, 270; 300, 325; 220, 380 |
| 512, 768x768 | 3860, 4060; 4110, 4570; 4080, 4660 |
| 512, 768x3072 | 16600, 16300; 16900, 15200; 17200, 17900 |
| batches of 48, 128x64 with 64x128 | 800, 1400 |

A GPT of four layers, 8 x 128 x 256, trains in 214 there, so 235 ms; an LSTM in 41, so 47. With the
larger ones a layer of BERT-base takes 222, so 199.

Attention of batch x heads x queries x features, forward; forward and backward:

| | float32 | bfloat16 |
|---|---|---|
| 8x4x128x64, causal | 1.0, 1.6; 4.4, 6.5 | 1.3, 1.0; 6.8, 5.9 |
| 4x12x256x64 | 5.7, 5.1; 20, 28 | 7.5, 3.9; 30, 39 |
| 1x16x512x64, causal | 7.2, 11; 28, 38 | 7.7, 7.3; 30, 33 |
| 1x16x512x64 | 7.1, 9.2; 26, 35 | 9.1, 7.5; 30, 35 |
| 2x12x1024x64, causal | 31, 58; 111, 209 | 31, 47; 102, 198 |
| 1x8x4096x40 | | 171, 576; 490, 1506 |

The same on the Cascade Lake, in float32:

| 8x4x128x64, causal | 1.8, 3.8; 6.9, 13 |
| 4x12x128x64 | 1.7, 2.2; 7.6, 16 |
| 4x12x256x64 | 9.6, 10; 31, 46 |
| 4x8x384x64 | 7.7, 20; 42, 67 |
| 1x16x512x64, causal | 6.8, 18; 40, 65 |

And on the Zen 3:

| 8x4x128x64, causal | 2.5, 3.1; 7.4, 8.2 |
| 4x12x128x64 | 3.8, 3.5; 13, 12 |
| 4x12x256x64 | 8.5, 13; 33, 53 |
| 1x16x512x64, causal | 11, 30; 37, 86 |

With what a split saves of copies of queries, keys and values it pays for fewer keys, too: forward
of a layer 256 wide of 16 x 128 takes 27.5, so 32; of four of a ViT 192 wide, 16 x 197, 143, so 153.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_LEAST_WORK = 3e8  # products
_FEW_ROWS, _LARGE_MATRIX = 64, 2**20
_MANY_ROWS, _SMALL_MATRIX = 2048, 2**16
# Of float32, where MKL's are faster, of a batch of matrices.
_LEAST_WORK_OF_BATCHES = 2e8
# Where what is between them is small; and the nanoseconds that MKL takes less for each of its work.
_LESS_WORK_OF_MKL, _SAVED_BY_MKL = 3e7, 2e-3
_LEAST_WORK_OF_ATTENTION, _LEAST_WORK_BESIDE_MKL = 2e8, 3e7
# Of attention forward; and of what is causal, and gradients.
_LEAST_KEYS = {torch.float32: 512, torch.bfloat16: 1024}
_LESS_KEYS = {torch.float32: 0, torch.bfloat16: 1024}


@dataclass(frozen=True)
class Mkl:
    """Where PyTorch's products of float32 and its attention, by MKL, are faster than XLA's.

    least: the work of a product with one matrix that is worth two programs; most: of one that is
    worth them with others; keys, causal_keys: of attention, the least.
    """

    least: float
    most: float
    keys: int
    causal_keys: int


AVX512 = Mkl(least=1e9, most=math.inf, keys=128, causal_keys=128)
AVX2 = Mkl(least=math.inf, most=2.8e8, keys=256, causal_keys=128)


def product(first: int, args: Sequence[Any], out: Any) -> bool:
    """Of a product of bfloat16, whose factors are the operands at `first` and after."""
    left, right = args[first : first + 2]
    if not left.dtype == right.dtype == torch.bfloat16 or not has_bfloat16():
        return False
    rows = left.numel() // max(left.shape[-1], 1)
    is_large = out.numel() * left.shape[-1] >= _LEAST_WORK
    return is_large or (rows <= _FEW_ROWS and right.numel() >= _LARGE_MATRIX)


def product_between(first: int, args: Sequence[Any], out: Any) -> bool:
    """The same of float32, where a graph is split for it."""
    left, right = args[first : first + 2]
    found = mkl()
    if not left.dtype == right.dtype == torch.float32 or found is None:
        return False
    least = _LEAST_WORK_OF_BATCHES if right.dim() > 2 else found.least
    return out.numel() * left.shape[-1] >= least


def saved_between(first: int, args: Sequence[Any], out: Any) -> float:
    """Nanoseconds that MKL takes less for a product of float32 that a graph may be split for."""
    left, right = args[first : first + 2]
    found = mkl()
    if not left.dtype == right.dtype == torch.float32 or right.dim() > 2 or found is None:
        return 0.0
    work = math.prod(sizes(first, args, out))
    return work * _SAVED_BY_MKL if _LESS_WORK_OF_MKL <= work <= found.most else 0.0


def sizes(first: int, args: Sequence[Any], out: Any) -> tuple[int, int, int]:
    """Rows, elements to a sum, and columns of a product, or of each of a batch of them."""
    left, right = args[first : first + 2]
    rows = out.shape[-2:-1] if right.dim() > 2 else out.shape[:-1]
    return math.prod(rows), left.shape[-1], math.prod(out.shape[-1:])


def is_narrow(first: int, args: Sequence[Any], out: Any) -> bool:
    """Whether many rows meet a small matrix, or each other, as in the gradient of the matrix."""
    rows, summed, columns = sizes(first, args, out)
    if out.dtype != torch.float32:
        return False
    if rows >= _MANY_ROWS:
        return summed * columns <= _SMALL_MATRIX
    is_gradient = args[first].stride()[-2:-1] == (1,)
    return is_gradient and summed >= _MANY_ROWS and rows * columns <= _SMALL_MATRIX


def attention(args: Sequence[Any], out: Any) -> bool:
    """Of `aten::_scaled_dot_product_flash_attention_for_cpu`: it leaves out what is masked."""
    query, key, *rest = args
    is_causal = len(rest) > 2 and rest[2]
    return _is_attention_left(query, key, is_causal, _LESS_KEYS if is_causal else _LEAST_KEYS)


def attention_backward(args: Sequence[Any], out: Any) -> bool:
    """Of its gradient."""
    query, key, is_causal = args[1], args[2], args[7]
    return _is_attention_left(query, key, is_causal, _LESS_KEYS)


def _is_attention_left(
    query: Tensor, key: Tensor, is_causal: bool, least: Mapping[torch.dtype, int]
) -> bool:
    if query.dtype not in least or (query.dtype == torch.bfloat16 and not has_bfloat16()):
        return False
    keys, work = key.shape[-2], query.numel() * key.shape[-2]
    found = mkl() if query.dtype == torch.float32 else None
    if found is not None and keys >= (found.causal_keys if is_causal else found.keys):
        return work >= _LEAST_WORK_BESIDE_MKL
    return keys >= least[query.dtype] and work >= _LEAST_WORK_OF_ATTENTION


@functools.cache
def has_bfloat16() -> bool:
    """Whether PyTorch has kernels of this CPU's own instructions for it."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@functools.cache
def mkl() -> Mkl | None:
    """Which of MKL's products are the faster ones on this CPU; None: no others than XLA's.

    Of AMD's CPUs those with AVX-512 (Zen 4) take the same for both.
    """
    capability = torch.backends.cpu.get_cpu_capability()
    if not torch.backends.mkl.is_available():
        return None
    if capability == "AVX2":
        return AVX2
    return AVX512 if capability == "AVX512" and _is_intels() else None


def _is_intels() -> bool:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        return any(line.startswith("vendor_id") and "GenuineIntel" in line for line in lines)
    return False
