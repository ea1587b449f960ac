"""Drawn numbers -> the text of a program's inputs.

Small ones are written out, so that a program is read as it is; large ones are what a compiler gives
to threads, tiles and vectors, and are made of a seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .holes import dtypes
from .shapes import Draw, between, chance, one_of

_SIZES = (2, 3, 1, 4, 0, 5, 2, 3)
_LARGEST = 60  # elements
_LARGE_SIZES = (3, 5, 1000, 5051, 33, 128, 1)
_LARGEST_OF_LARGE = 80_000


@dataclass(frozen=True)
class Kind:
    """What a program's inputs are like.

    single: float32 may be used. tame: all numbers are finite. gradient: some require gradients.
    """

    single: bool
    tame: bool
    gradient: bool
    large: bool


def literal(draw: Draw, kind: Kind) -> str:
    """An expression of a tensor, in which `device` is known."""
    sizes, largest = (_LARGE_SIZES, _LARGEST_OF_LARGE) if kind.large else (_SIZES, _LARGEST)
    shape = [one_of(draw, sizes) for _ in range(one_of(draw, (0, 1, 2, 3, 2, 3, 4)))]
    while math.prod(shape) > largest:
        shape.pop()
    dtype = one_of(draw, [torch.float64, *dtypes(kind.single), *[torch.float64] * 3])
    seed = one_of(draw, range(10_000))
    if kind.large:
        text = _seeded(tuple(shape), dtype, seed)
    else:
        text = _written_out(draw, tuple(shape), dtype, seed, kind.tame)
    if kind.gradient and dtype.is_floating_point and not chance(draw, 30):
        text += ".requires_grad_()"
    return text


def _seeded(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> str:
    numbers = f"torch.randn({shape}, generator=torch.Generator().manual_seed({seed})).mul(2)"
    return f"{numbers}{'.abs()' if dtype is torch.uint8 else ''}.to({dtype}).to(device)"


def _written_out(
    draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, seed: int, tame: bool
) -> str:
    """Numbers from a seed, rounded to be readable; some not finite where it is not `tame`."""
    count, generator = math.prod(shape), torch.Generator().manual_seed(seed)
    numbers = (torch.randn(count, dtype=torch.float64, generator=generator) * 2).round(decimals=3)
    if chance(draw, 30):
        numbers = (numbers * 2).round() / 2  # ties and zeros
    if not tame and count and dtype.is_floating_point:
        special = torch.tensor([math.nan, math.inf, -math.inf, -0.0], dtype=torch.float64)
        chosen = torch.randint(0, 12, (count,), generator=generator)
        numbers = torch.where(chosen < 4, special[chosen.clamp(max=3)], numbers)
    if dtype is torch.bool:
        numbers = numbers > 0
    elif dtype is torch.uint8:
        numbers = numbers.abs()
    text = f"torch.tensor({numbers.to(dtype).tolist()}, dtype={dtype}, device=device)"
    text = f"{text}.reshape({shape})" if len(shape) != 1 else text
    if len(shape) > 1 and chance(draw, 25):
        text = f"{text}.transpose(0, {between(draw, 1, len(shape) - 1)})"
    return text
