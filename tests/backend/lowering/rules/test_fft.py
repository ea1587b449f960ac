from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, run

aten = torch.ops.aten
DTYPES = [(torch.float32, torch.complex64), (torch.float64, torch.complex128)]
DIMS = [((5,), [0]), ((4, 6), [1]), ((4, 6), [-2]), ((4, 6), [1, 0]), ((3, 4, 5, 6), [3, 0, 2])]
MANY = ((2, 3, 4, 2, 3), [4, 0, 2, 1, 3])


@pytest.mark.parametrize("dtype", [c for _, c in DTYPES])
@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize(("shape", "dim"), [*DIMS, MANY, ((1,), [0])])
@pytest.mark.parametrize("forward", [True, False])
def test_complex(dtype, normalization, shape, dim, forward):
    dim = [d % len(shape) for d in dim]
    check(aten._fft_c2c.default, torch.randn(shape, dtype=dtype), dim, normalization, forward)


@pytest.mark.parametrize("dtype", [r for r, _ in DTYPES])
@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize(("shape", "dim"), [*DIMS, MANY, ((1,), [0])])
@pytest.mark.parametrize("onesided", [True, False])
def test_real_to_complex(dtype, normalization, shape, dim, onesided):
    dim = [d % len(shape) for d in dim]
    check(aten._fft_r2c.default, torch.randn(shape, dtype=dtype), dim, normalization, onesided)


@pytest.mark.parametrize(("real", "dtype"), DTYPES)
@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize(("shape", "dim"), [*DIMS, MANY, ((1,), [0])])
@pytest.mark.parametrize("odd", [0, 1])
def test_complex_to_real(real, dtype, normalization, shape, dim, odd):
    dim = [d % len(shape) for d in dim]
    # A half spectrum of a real signal: of any other, transforms may read either half.
    size = max(2 * (shape[dim[-1]] - 1), 0) + odd or 1
    signal = list(shape)
    signal[dim[-1]] = size
    spectrum = aten._fft_r2c(torch.randn(signal, dtype=real), dim, 2, True)
    check(aten._fft_c2r.default, spectrum, dim, normalization, size)


def test_empty_batches():  # which eager's FFT library refuses
    assert run(
        aten._fft_c2c.default, torch.zeros(0, 4, dtype=torch.complex64), [1], 0, True
    ).shape == (0, 4)
    assert run(aten._fft_r2c.default, torch.zeros(0, 4), [1], 0, True).shape == (0, 3)
    assert run(
        aten._fft_c2r.default, torch.zeros(0, 3, dtype=torch.complex64), [1], 0, 4
    ).shape == (0, 4)
