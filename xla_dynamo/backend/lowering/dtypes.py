"""torch.dtype to the NumPy/JAX dtype of the same width and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

_NAMES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128 float8_e4m3fn float8_e5m2"
)
_TO_NUMPY: dict[torch.dtype, np.dtype] = {
    getattr(torch, name): np.dtype(name) for name in _NAMES.split()
}
_TO_TORCH = {numpy: torch_ for torch_, numpy in _TO_NUMPY.items()}


def is_supported(dtype: torch.dtype) -> bool:
    """Whether XLA has this dtype (it has no quantized ones, for example)."""
    return dtype in _TO_NUMPY


def to_numpy(dtype: torch.dtype) -> np.dtype:
    """The NumPy (or ml_dtypes) dtype with the layout of `dtype`; KeyError if XLA has none."""
    return _TO_NUMPY[dtype]


def to_torch(dtype: np.dtype) -> torch.dtype:
    """The inverse of `to_numpy`."""
    return _TO_TORCH[np.dtype(dtype)]


def accumulation(dtype: np.dtype) -> np.dtype:
    """The dtype in which eager PyTorch sums values of `dtype`: float32 for the 16-bit floats."""
    return np.dtype(np.float32) if dtype in (np.float16, ml_dtypes.bfloat16) else np.dtype(dtype)
