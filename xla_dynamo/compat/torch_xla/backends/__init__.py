"""torch_xla.backends: the precision of float32 products on the device."""

from __future__ import annotations

from typing import Literal

from .. import _XLAC

__all__ = ["get_mat_mul_precision", "set_mat_mul_precision"]


def set_mat_mul_precision(precision: Literal["default", "high", "highest"]) -> None:
    """Float32 products in float32 ("highest"), or in three ("high") or one bfloat16 passes.

    Raises:
        KeyError: another word.
    """
    _XLAC._xla_set_mat_mul_precision(precision)


def get_mat_mul_precision() -> str:
    """What set_mat_mul_precision set, or what torch.set_float32_matmul_precision says."""
    return _XLAC._xla_get_mat_mul_precision()
