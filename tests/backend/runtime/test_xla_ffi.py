"""Python functions as custom calls of XLA:CPU: every dtype, empty arrays, errors."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
import torch

from tests.like_eager.rules import to_jax, to_torch
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.runtime import xla_ffi


def _work(text: bytes, arguments: list[torch.Tensor], results: list[torch.Tensor]) -> None:
    if text == b"fail":
        raise ValueError("as it was told")
    if text == b"without a word":
        raise KeyboardInterrupt
    results[0].copy_(arguments[0].flip(0))
    results[1].fill_(len(text))


HANDLER = xla_ffi.handler(_work)
jax.ffi.register_ffi_target("test_xla_ffi", jax.ffi.pycapsule(HANDLER), platform="cpu")


def _run(x: torch.Tensor, text: str) -> tuple[torch.Tensor, torch.Tensor]:
    with apart():
        array = to_jax(x)
        results = (
            jax.ShapeDtypeStruct(array.shape, array.dtype),
            jax.ShapeDtypeStruct((), np.int64),
        )
        call = jax.ffi.ffi_call("test_xla_ffi", results)
        flipped, count = jax.jit(lambda x: call(x, text=text))(array)
        return to_torch(flipped), to_torch(count)


@pytest.mark.parametrize("dtype", list(xla_ffi.DTYPES.values()), ids=str)
@pytest.mark.parametrize("shape", [(3, 2), (5,), (0, 4)])
def test_tensors_over_xlas_memory(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = (torch.arange(math.prod(shape)).reshape(shape) % 5).to(dtype)
    flipped, count = _run(x, "héllo")
    assert flipped.dtype == dtype
    assert torch.equal(flipped, x.flip(0))
    assert count == len("héllo".encode())


@pytest.mark.parametrize(
    ("text", "message"), [("fail", "as it was told"), ("without a word", "KeyboardInterrupt")]
)
def test_what_is_raised_is_xlas_error(text: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        _run(torch.ones(2), text)
    assert torch.equal(_run(torch.ones(2), "ok")[0], torch.ones(2))
