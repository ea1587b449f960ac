"""torch.dtype to the NumPy/JAX dtype of the same width and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

_TO_NUMPY: dict[torch.dtype, np.dtype] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
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
