"""The promotion helper agrees with torch.result_type on every pair of operands."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.like_eager.rules import to_jax
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported
from xla_dynamo.backend.lowering.rules import _promotion

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
TENSORS = [torch.ones(shape, dtype=dtype) for dtype in DTYPES for shape in ((), (1,))]
NUMBERS = [True, 2, 2.5, 2.5j]


def test_pairs_of_tensors_and_numbers() -> None:
    with apart():
        arrays = [to_jax(tensor) for tensor in TENSORS]
        pairs = list(itertools.product(zip(TENSORS, arrays, strict=True), repeat=2))
        pairs += [(pair, (n, n)) for pair in zip(TENSORS, arrays, strict=True) for n in NUMBERS]
        for (first, first_array), (second, second_array) in pairs:
            expected = torch.result_type(first, second)
            if not dtypes.is_supported(expected):  # of bfloat16 and complex from torch 2.15 on
                assert str(expected) in ("torch.complex32", "torch.bcomplex32")
                with pytest.raises(Unsupported, match="complex32"):
                    _promotion.result_dtype(first_array, second_array)
            else:
                actual = _promotion.result_dtype(first_array, second_array)
                assert actual == dtypes.to_numpy(expected), (first, second)


@pytest.mark.parametrize(("number", "expected"), [(-1, 255), (300, 44), (2.7, 2)])
def test_numbers_wrap_into_narrow_dtypes(number: float, expected: int) -> None:
    assert _promotion.cast(number, dtypes.to_numpy(torch.uint8)).tolist() == expected
