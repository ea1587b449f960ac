"""Large products of bfloat16 and attention are PyTorch's own kernels, with eager's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo.compat
from tests.backend.lowering.same_gradients import assert_same
from xla_dynamo.backend.lowering import host_products

BOUND = 0.02  # of bfloat16
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def _leaves(*sizes: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    return [(torch.randn(size) * 0.2).to(dtype).requires_grad_() for size in sizes]


def _layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.linear(x * 2, weight, bias)) * 3


@pytest.mark.parametrize("rows", [2, 512])
def test_products_of_bfloat16(rows: int, calls: list[str]) -> None:
    inputs = _leaves([rows, 1024], [1024, 1024], [1024], dtype=torch.bfloat16)
    assert_same(_layer, torch.compile(_layer, backend="xla"), inputs, BOUND)
    has_units = host_products.has_bfloat16()
    assert ("addmm.default" in calls) == has_units
    assert calls.count("mm.default") == (1 if rows == 2 else 2) * has_units


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 128), (torch.float16, 512), (torch.bfloat16, 128)]
)
def test_other_products_are_xlas(dtype: torch.dtype, size: int, calls: list[str]) -> None:
    inputs = [each.detach() for each in _leaves([size, size], [size, size], [size], dtype=dtype)]
    got = torch.compile(_layer, backend="xla")(*inputs)
    torch.testing.assert_close(got, _layer(*inputs), rtol=0.02, atol=0.02)
    assert calls == []


@pytest.fixture(params=[True, False])
def has_mkl(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether products of float32 are MKL's: on a CPU of Intel's."""
    products = host_products.AVX512 if request.param else None
    monkeypatch.setattr(host_products, "mkl", lambda: products)
    return request.param


def test_large_products_of_float32(has_mkl: bool, calls: list[str]) -> None:
    inputs = _leaves([1024, 1024], [1024, 1024], [1024], dtype=torch.float32)
    assert_same(_layer, torch.compile(_layer, backend="xla"), inputs, 1e-4)
    assert sorted(calls) == ["addmm.default", "mm.default", "mm.default"] * has_mkl


def test_large_products_of_float32_lazily(has_mkl: bool, calls: list[str]) -> None:
    x, weight, bias = _leaves([1024, 1024], [1024, 1024], [1024], dtype=torch.float32)
    xla_dynamo.compat.install()
    got = _layer(*[each.detach().to("xla") for each in (x, weight, bias)]).cpu()
    torch.testing.assert_close(got, _layer(x, weight, bias).detach(), rtol=1e-4, atol=1e-4)
    assert calls == ["addmm.default"] * has_mkl


def _mixed(weights: Tensor, values: Tensor) -> Tensor:
    return torch.bmm(weights.softmax(-1), values) * 2


@pytest.mark.parametrize("batch", [4, 16])
def test_batches_of_products_of_float32(batch: int, has_mkl: bool, calls: list[str]) -> None:
    inputs = _leaves([batch, 256, 256], [batch, 256, 256], dtype=torch.float32)
    assert_same(_mixed, torch.compile(_mixed, backend="xla"), inputs, 1e-4)
    is_split = batch == 16 and has_mkl
    assert calls.count("bmm.default") == 3 * is_split
    beside = {"_softmax.default", "_softmax_backward_data.default"}
    assert set(calls) - {"bmm.default"} == (beside if is_split else set())


@pytest.mark.parametrize("causal", [True, False])
def test_attention_beside_mkl(causal: bool, has_mkl: bool, calls: list[str]) -> None:
    (qkv,) = _leaves([4, 128, 3 * 8 * 64], dtype=torch.float32)

    def attention(qkv: Tensor) -> Tensor:
        return _heads(qkv, causal)

    assert_same(attention, torch.compile(attention, backend="xla"), [qkv], 1e-4)
    assert calls == [f"{ATTENTION}.default", f"{ATTENTION}_backward.default"] * has_mkl


@pytest.mark.parametrize(
    ("length", "causal", "is_left"), [(160, True, True), (160, False, False), (320, False, True)]
)
def test_attention_without_avx512(
    length: int, causal: bool, is_left: bool, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_products, "mkl", lambda: host_products.AVX2)
    (qkv,) = _leaves([4, length, 3 * 8 * 64], dtype=torch.float32)

    def attention(qkv: Tensor) -> Tensor:
        return _heads(qkv, causal)

    assert_same(attention, torch.compile(attention, backend="xla"), [qkv], 1e-4)
    assert calls == [f"{ATTENTION}.default", f"{ATTENTION}_backward.default"] * is_left


def test_products_lazily(calls: list[str]) -> None:
    inputs = _leaves([512, 1024], [1024, 1024], [1024], dtype=torch.bfloat16)
    xla_dynamo.compat.install()

    def lazily(*given: Tensor) -> Tensor:
        return _layer(*[x.to("xla") for x in given]).cpu()

    assert_same(_layer, lazily, inputs, BOUND)
    assert ("mm.default" in calls) == host_products.has_bfloat16()


def _heads(qkv: Tensor, causal: bool = True) -> Tensor:
    """Self-attention of 8 heads, as a decoder's layer has it."""
    batch, length, width = qkv.shape
    heads = (qkv * 2).view(batch, length, 3, 8, width // 24).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(*heads, is_causal=causal)
    return mixed.transpose(1, 2).reshape(batch, length, -1) * 3


@pytest.mark.parametrize(
    ("causal", "dtype", "length", "kernels"),
    [
        (True, torch.float32, 640, {ATTENTION, f"{ATTENTION}_backward"}),
        (False, torch.float32, 448, {f"{ATTENTION}_backward"}),
        (True, torch.float32, 64, set()),
        (True, torch.bfloat16, 640, set()),
    ],
)
def test_attention(
    causal: bool,
    dtype: torch.dtype,
    length: int,
    kernels: set[str],
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_products, "mkl", lambda: None)
    (qkv,) = _leaves([2, length, 3 * 8 * 64], dtype=dtype)

    def attention(qkv: Tensor) -> Tensor:
        return _heads(qkv, causal)

    assert_same(attention, torch.compile(attention, backend="xla"), [qkv], BOUND)
    assert {call.removesuffix(".default") for call in calls} == kernels


def test_attention_with_a_mask_and_a_scale(calls: list[str]) -> None:
    query, key, value = _leaves(*[[1, 8, 640, 64]] * 3, dtype=torch.float32)
    mask = torch.rand(1, 1, 640, 640) > 0.3

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query * 2, key, value, attn_mask=mask, scale=0.2) + 1

    compiled = torch.compile(attention, backend="xla")
    assert_same(attention, compiled, [query, key, value], BOUND)
    assert set(calls) == {f"{ATTENTION}.default", f"{ATTENTION}_backward.default"}


def test_queries_keys_and_values_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are views of what the program before computes, as in eager, and so is the result."""
    copies: list[Sequence[int]] = []
    contiguous = Tensor.contiguous

    def copied(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not tensor.is_contiguous():
            copies.append(tensor.shape)
        return contiguous(tensor, *args, **kwargs)

    (qkv,) = _leaves([2, 640, 3 * 8 * 64], dtype=torch.float32)
    compiled = torch.compile(_heads, backend="xla")
    compiled(qkv).sum().backward()
    monkeypatch.setattr(Tensor, "contiguous", copied)
    compiled(qkv).sum().backward()
    assert copies == []
