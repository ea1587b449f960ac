"""The float rewrites of XLA and LLVM, and the forms of ops that they leave alone.

XLA treats floats as if they were real numbers. A helper here is written so that it cannot; with
`numerics="xla"` the helper is the plain form, and XLA compiles what JAX would give it. No other
rule knows of a rewrite. `REWRITES` is the table of all of them, those that passes cure included.
Miscompilations, which are no identity of real numbers, are cured whatever `numerics` says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import PerPlatform, numerics

from . import _exponentials

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Rewrite:
    """A row of the table.

    rewrite: what XLA or LLVM makes of what.
    breaks: how results differ from eager's.
    cures: helpers of this module, or files below backend/.
    test: a test that fails without the cure, as `file::function` below tests/.
    is_miscompilation: whether it is wrong for real numbers, too; the cure is then always on.
    jaxlib: the last version that was seen to do it.
    """

    rewrite: str
    breaks: str
    cures: tuple[str, ...]
    test: str
    is_miscompilation: bool = False
    jaxlib: str = "0.10.2"


_RULES = "backend/lowering/rules"
_PASSES = "backend/passes/numerics"

REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        "x + 0 -> x",
        "-0.0 + 0 is 0.0 and stays -0.0",
        ("plus_zero", "is_dropped", "passes/numerics/no_reassociation.py"),
        f"{_RULES}/test_arithmetic.py::test_zeros_that_are_added_make_zeros_positive",
    ),
    Rewrite(
        "a sum of one element -> the element",
        "eager begins with 0.0: its sum of -0.0 is 0.0",
        ("begun_with_zero", "lowering/native.py"),
        "backend/numerics/test_running_sums.py::test_one_summand",
    ),
    Rewrite(
        "max(x, y), min(x, y) -> either, where they are equal",
        "clamps and relu choose another zero of 0.0 and -0.0 than eager",
        ("at_least", "at_most", "relu", "lowering/native.py"),
        "backend/numerics/test_corners.py::test_corners",
    ),
    Rewrite(
        "x / c -> x * (1 / c)",
        "rounded twice: 49 / 49 is 0.9999999999999999; 1 / c may be 0 where c is finite",
        (
            "divided",
            "lowering/native.py",
            "lowering/rules/rare/orthogonal_polynomials.py",
            "passes/numerics/exact_division.py",
        ),
        f"{_PASSES}/test_exact_division.py::test_ones_are_normalized_to_zeros",
    ),
    Rewrite(
        "x * c + y -> fma(x, c, y), in some iterations of a loop (LLVM)",
        "equal elements of logaddexp2 differ; a quotient is not fused",
        ("divided",),
        "backend/numerics/test_corners.py::test_corners",
    ),
    Rewrite(
        "(x + a) + b -> x + (a + b), x * a * b -> x * (a * b), log(x ** y) -> y * log(x)",
        "rounding by adding and subtracting a large number is undone; a * b overflows",
        ("passes/numerics/no_reassociation.py",),
        f"{_PASSES}/test_no_reassociation.py::test_both_doors_give_what_eager_gives",
    ),
    Rewrite(
        "x / y / z -> x / (y * z)",
        "y * z overflows or vanishes where the quotients do not",
        ("passes/numerics/exact_division.py",),
        f"{_PASSES}/test_exact_division.py::test_quotients_of_quotients",
    ),
    Rewrite(
        "0 / n -> 0 for n made of integers (LLVM)",
        "0 / 0 is 0 and not nan",
        ("passes/numerics/nan_of_zero_over_zero.py",),
        f"{_PASSES}/test_nan_of_zero_over_zero.py::test_both_doors_give_what_eager_gives",
    ),
    Rewrite(
        "x * float(mask) -> where(mask, x, 0)",
        "inf * 0 and nan * 0 are 0 and not nan",
        ("ones_where",),
        f"{_RULES}/test_numerics.py::test_the_default_is_eager_and_xla_differs",
    ),
    Rewrite(
        "float32 -> bfloat16 -> float32 -> float32 (GPUs)",
        "what eager rounds to 16 bits is not rounded",
        ("rounded_to",),
        f"{_RULES}/test_numerics.py::test_rounding_is_no_conversion_that_could_be_dropped",
    ),
    Rewrite(
        "exp2(x) -> exp(x * log(2)), log2(x) -> log(x) / log(2), log10 alike",
        "exp2(3) is not 8, floor(log2(8)) is 2; digits are lost of large results",
        ("exp2", "log2", "log10"),
        f"{_RULES}/test_pointwise.py::test_whole_powers_are_exact",
    ),
    Rewrite(
        "sinh(x) -> exp(x - log(2)) - exp(-x - log(2)), cosh alike",
        "the rounding of x - log(2) shows in the sixth digit of a large float32",
        ("sinh", "cosh"),
        f"{_RULES}/test_pointwise.py::test_exponentials_of_large_numbers",
    ),
    Rewrite(
        "atan2(y, x) of zeros that LLVM knows (CPU)",
        "nan",
        ("atan2",),
        "backend/numerics/test_corners.py::test_corners",
        is_miscompilation=True,
    ),
    Rewrite(
        "grouped convolutions multiply the channels of other groups by 0 (CPU)",
        "nan or infinity in one group is nan in the others",
        ("lowering/rules/cpu/convolution.py",),
        f"{_RULES}/test_convolution.py::test_nan_stays_in_its_group",
        is_miscompilation=True,
    ),
    Rewrite(
        "reduce_window of equal constants from 0 -> multiples of the constant",
        "conversions on the way are forgotten; the process ends for an array of one element",
        ("lowering/linker.py",),
        "backend/numerics/test_running_sums.py::test_running_sums_of_constants",
        is_miscompilation=True,
    ),
    Rewrite(
        "a slice is overwritten in the loop that still reads it, through a reshape (CPU)",
        "elements are computed from new ones",
        ("passes/numerics/inplace_hazards.py",),
        f"{_PASSES}/test_inplace_hazards.py::test_both_doors_give_what_eager_gives",
        is_miscompilation=True,
    ),
)


def instead_of(plain: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The decorated function takes the place of `plain`, unless `numerics` is "xla"."""

    def decorate(cure: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(cure)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
            return (plain if numerics() == "xla" else cure)(*args, **kwargs)

        return chosen

    return decorate


# Signs of zeros


def _is_inexact(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


@instead_of(lambda x: x)
def plus_zero(x: Array) -> Array:
    """`x` + 0.0, which makes -0.0 positive."""
    return jnp.where(x == 0, jnp.zeros((), x.dtype), x) if _is_inexact(x) else x


@instead_of(lambda number, factor: False)
def is_dropped(number: object, factor: object) -> bool:
    """Whether a product of Python numbers is 0 (and not -0.0), so that XLA drops its addition."""
    if not isinstance(number, bool | int | float) or not isinstance(factor, bool | int | float):
        return False
    product = float(number) * float(factor)
    return product == 0 and math.copysign(1, product) > 0


def begun_with_zero(sums: Array, *, of_one: bool) -> Array:
    """Sums as eager begins them, with 0.0; one of a single summand (`of_one`) is 0.0 for -0.0."""
    return plus_zero(sums) if of_one else sums


@instead_of(jnp.maximum)
def at_least(x: Array, low: Array) -> Array:
    """The maximum, which is `x` where the two are equal."""
    return jnp.where((x >= low) | (x != x), x, low) if _is_inexact(x) else jnp.maximum(x, low)


@instead_of(jnp.minimum)
def at_most(x: Array, high: Array) -> Array:
    """The minimum, which is `x` where the two are equal."""
    return jnp.where((x <= high) | (x != x), x, high) if _is_inexact(x) else jnp.minimum(x, high)


@PerPlatform
def relu(x: Array) -> Array:
    """The maximum of `x` and 0. Compilers for GPUs fuse it into convolutions."""
    return lax.max(x, jnp.zeros((), x.dtype))


@relu.on("cpu")
@instead_of(relu.plain)
def _relu_of_zeros(x: Array) -> Array:
    """-0.0 of -0.0, as in eager."""
    zero = jnp.zeros((), x.dtype)
    return jnp.where(x < 0, zero, x) if _is_inexact(x) else lax.max(x, zero)


# Quotients


@PerPlatform
def divided(x: Array, number: float) -> Array:
    """`x`, floats or complex numbers, by a number."""
    return x / jnp.full(x.shape, number, x.dtype)


@divided.on("cpu")
@instead_of(divided.plain)
def _divided_once(x: Array, number: float) -> Array:
    """Rounded once. Elsewhere the barrier would stay in the program, and keep it from fusing."""
    divisor = jnp.full(x.shape, number, x.dtype)
    has_reciprocal = number == 0 or abs(math.frexp(number)[0]) == 0.5
    return x / (divisor if has_reciprocal else lax.optimization_barrier(divisor))


def mean(x: Array, axes: Sequence[int] | None = None, *, keepdims: bool = False) -> Array:
    """The mean of floats or complex numbers over `axes`, by default all; NaN of nothing."""
    over = range(x.ndim) if axes is None else axes
    count = math.prod(x.shape[axis] for axis in over)
    return divided(jnp.sum(x, tuple(over), keepdims=keepdims), count)


# Conversions


@instead_of(lambda x, dtype: x.astype(dtype).astype(x.dtype))
def rounded_to(x: Array, dtype: np.dtype) -> Array:
    """Floats as the narrower `dtype` holds them, in their own dtype."""
    bits = jnp.finfo(dtype)
    return lax.reduce_precision(x, bits.nexp, bits.nmant)


@instead_of(lambda mask, dtype: mask.astype(dtype))
def ones_where(mask: Array, dtype: np.dtype) -> Array:
    """A mask as the floats 1 and 0."""
    return jnp.where(mask, np.ones((), dtype), np.zeros((), dtype))


# Exponentials, and an angle

exp2 = instead_of(jnp.exp2)(_exponentials.exp2)
log2 = instead_of(jnp.log2)(_exponentials.log2)
log10 = instead_of(jnp.log10)(_exponentials.log10)
sinh = instead_of(lax.sinh)(_exponentials.sinh)
cosh = instead_of(lax.cosh)(_exponentials.cosh)


def atan2(y: Array, x: Array) -> Array:
    """The angle of (x, y), of zeros too."""
    at_zero = (x == 0) & (y == 0)
    return lax.atan2(*jnp.broadcast_arrays(y, jnp.where(at_zero, jnp.copysign(1, x), x)))
