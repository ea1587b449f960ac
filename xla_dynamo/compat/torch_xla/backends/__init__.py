"""torch_xla.backends: the precision of float32 products on the device."""

from __future__ import annotations

from .._XLAC import _xla_get_mat_mul_precision as get_mat_mul_precision
from .._XLAC import _xla_set_mat_mul_precision as set_mat_mul_precision

__all__ = ["get_mat_mul_precision", "set_mat_mul_precision"]
