"""torch.ops.xla.*, on tensors of the device and of the CPU, and compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_xla.distributed.spmd import xla_sharding
from torch_xla.experimental import custom_kernel

from xla_dynamo.compat.namespace import operators
from xla_dynamo.errors import NotAvailable

XLA = torch.device("xla:0")
ops = torch.ops.xla


def close(lazy: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(lazy.cpu(), expected)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_attention_with_gradients(device: str) -> None:
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    expected = q.clone().requires_grad_()
    torch.nn.functional.scaled_dot_product_attention(
        expected, k, v, is_causal=True, scale=1.0
    ).sum().backward()
    x = q.to(device).requires_grad_()
    out = ops.flash_attention(x, k.to(device), v.to(device), casual=True)
    out.sum().backward()
    close(out, custom_kernel.flash_attention(q, k, v, True))
    assert x.grad is not None
    assert expected.grad is not None
    close(x.grad, expected.grad)


@pytest.mark.parametrize(
    ("window", "cap", "segments"),
    [(None, None, False), (None, None, True), (3, None, True), (3, 2.0, True)],
)
def test_splash_attention(window: int | None, cap: float | None, segments: bool) -> None:
    """Heads that share keys, segments and a sliding window; with a cap, without PyTorch's op."""
    q, (k, v) = torch.randn(1, 4, 8, 16), torch.randn(2, 1, 2, 8, 16)
    ids = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]]) * segments
    config = custom_kernel.SplashAttentionConfig(
        attentiontype_local_sliding=window is not None, slide_window_size=window
    ).to_json()
    given = ids.to(XLA) if segments else None
    lazy = [x.to(XLA).requires_grad_() for x in (q, k, v)]
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    out = custom_kernel.splash_attention(*lazy, config, given, attn_logits_soft_cap=cap)
    scores = q @ k.repeat_interleave(2, 1).mT
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    distance = torch.arange(8)[:, None] - torch.arange(8)
    allowed = (distance >= 0) & (distance < (window or 8)) & (ids[0][:, None] == ids[0])
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    expected = weights @ v.repeat_interleave(2, 1)
    close(out, expected)
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for x, y in zip(torch.autograd.grad(out.square().sum(), lazy), wanted, strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["xla", "openxla"])
def test_they_compile(backend: str) -> None:
    device = "cpu" if backend == "xla" else "xla"
    x, w = torch.randn(2, 4), torch.randint(-8, 8, (3, 4), dtype=torch.int8)
    scale = torch.rand(3)

    def run(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return ops.write_mlir_debuginfo(ops.quantized_matmul(x, w, scale), "product") + 1

    compiled = torch.compile(run, backend=backend)
    close(compiled(x.to(device), w.to(device), scale.to(device)), (x @ w.float().T) * scale + 1)


def test_what_only_tells_the_compiler_something_gives_the_tensor() -> None:
    x = torch.arange(4.0, device=XLA).reshape(2, 2)
    for same in (
        ops.mark_tensor(x, "part", pos=0, id="1", is_input=True),
        ops.dynamo_set_buffer_donor_(x, True),
        ops.dynamo_mark_sharding(x, [0], [1, 1], "('x', 'y')", "('x', None)"),
    ):
        close(same, torch.arange(4.0).reshape(2, 2))
    close(ops.einsum_linear_forward(x, x, None), x.cpu() @ x.cpu().T)


def test_shardings_are_checked() -> None:
    with pytest.raises(NotAvailable, match="2 devices"):
        ops.dynamo_mark_sharding(torch.ones(2, device=XLA), [0, 1], [2], "('x',)", "('x',)")
    x = torch.ones(2, device=XLA, requires_grad=True)
    mesh = xla_sharding.get_1d_mesh("x")
    y = xla_sharding.MarkShardingFunction.apply(x, mesh, ("x",))
    (y * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_every_signature_has_a_body() -> None:
    for schema in operators.OPS:
        name = schema.partition("(")[0]
        assert getattr(ops, name).default._schema.name == f"xla::{name}"


def paged(rows: Tensor, pages: Tensor, length: int, repeat: int) -> Tensor:
    """The first `length` rows of some pages, (pages, page size, kv heads, width), for each head."""
    return rows[pages].flatten(0, 1)[:length].repeat_interleave(repeat, 1)


def causal(q: Tensor, k: Tensor, v: Tensor, *, scale: float = 1.0, window: int = 99) -> Tensor:
    """The last len(q) positions of a sequence of len(k): (length, heads, width)."""
    distance = torch.arange(len(k) - len(q), len(k))[:, None] - torch.arange(len(k))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    allowed = (distance >= 0) & (distance < window)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~allowed, -torch.inf).softmax(-1), v)


@pytest.mark.parametrize("backend", [None, "xla", "openxla"])
@pytest.mark.parametrize("window", [None, 3])
def test_ragged_paged_attention(window: int | None, backend: str | None) -> None:
    torch.manual_seed(0)
    q, pages = torch.randn(9, 4, 8), torch.randn(10, 4, 4, 8)
    table = torch.randperm(10)[:9].reshape(3, 3).to(torch.int32)
    starts, lengths = [0, 1, 6], [7, 12]  # a sequence of one query, one of five; a third is none

    def run(*args: Tensor) -> Tensor:
        return ops.ragged_paged_attention(*args, sm_scale=0.3, sliding_window=window, k_scale=2.0)

    run = run if backend is None else torch.compile(run, backend=backend)
    given = [torch.tensor([*lengths, 99], dtype=torch.int32), table]
    given += [torch.tensor([*starts, 99], dtype=torch.int32), torch.tensor([2], dtype=torch.int32)]
    actual = run(*(x.to(XLA) for x in (q, pages, *given)))
    expected = torch.zeros(9, 4, 8)
    for row, (begin, end, length) in enumerate(zip(starts, starts[1:], lengths, strict=False)):
        keys = paged(pages[:, :, 0::2], table[row], length, 2) * 2
        values = paged(pages[:, :, 1::2], table[row], length, 2)
        expected[begin:end] = causal(q[begin:end], keys, values, scale=0.3, window=window or 99)
    close(actual, expected)


@pytest.mark.parametrize("backend", [None, "xla"])
@pytest.mark.parametrize("trained", [False, True])
def test_paged_attention(trained: bool, backend: str | None) -> None:
    """One query a sequence, of which the last is empty; with gradients, products everywhere."""
    q, pages = torch.randn(3, 4, 8), torch.randn(2, 2, 10, 4, 8)
    table = torch.randperm(10)[:9].reshape(3, 3).to(torch.int32)
    lengths = torch.tensor([5, 12, 0], dtype=torch.int32)

    def run(*args: Tensor) -> Tensor:
        return ops.paged_attention(*args, pages_per_compute_block=2)

    run = run if backend is None else torch.compile(run, backend=backend)
    x = q.to(XLA).requires_grad_(trained)
    actual = run(x, *(t.to(XLA) for t in (*pages, lengths, table)))
    y = q.clone().requires_grad_(trained)
    expected = torch.zeros(3, 4, 8)
    for row, length in enumerate([5, 12]):
        keys, values = (paged(p.permute(1, 2, 0, 3), table[row], length, 2) for p in pages)
        expected[row] = causal(y[row, None], keys, values)[0]
    close(actual, expected)
    if trained:
        gradients = torch.autograd.grad(actual.square().sum(), x)[0]
        close(gradients, torch.autograd.grad(expected.square().sum(), y)[0])


def test_a_megacore_divides_heads_or_sequences() -> None:
    x = torch.ones(1, 1, 8)
    with pytest.raises(ValueError, match="megacore_mode must be one of"):
        custom_kernel.paged_attention(x, x[None], x[None], x, x, 1, megacore_mode="cores")


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_multi_queries_paged_attention(device: str) -> None:
    torch.manual_seed(0)
    q, pages = torch.randn(2, 3, 4, 8), torch.randn(2, 2, 10, 4, 8)
    table = torch.randperm(10)[:6].reshape(2, 3).to(torch.int32)
    lengths, queries = torch.tensor([5, 12]), torch.tensor([2, 3])
    given = [x.to(device) for x in (q, *pages, lengths, table, queries)]
    actual = ops.multi_queries_paged_attention(*given, 1, 1, True)
    for row, (length, count) in enumerate([(5, 2), (12, 3)]):
        keys, values = (paged(x.permute(1, 2, 0, 3), table[row], length, 2) for x in pages)
        close(actual[row, :count], causal(q[row, :count], keys, values))
    bent = ops.multi_queries_paged_attention(*given, 1, 1, True, 0.5)
    assert not torch.equal(bent.cpu(), actual.cpu())


@pytest.mark.parametrize("backend", [None, "xla"])
def test_products_by_groups_with_gradients(backend: str | None) -> None:
    torch.manual_seed(0)
    lhs, rhs, sizes = torch.randn(9, 4), torch.randn(3, 4, 5), torch.tensor([2, 0, 5])
    expected = torch.cat([lhs[:2] @ rhs[0], lhs[2:7] @ rhs[2], torch.zeros(2, 5)])
    gmm = ops.gmm if backend is None else torch.compile(ops.gmm, backend=backend)
    x, w = (t.to(XLA).requires_grad_() for t in (lhs, rhs))
    out = gmm(x, w, sizes.to(XLA))
    close(out, expected)
    grad = torch.randn(9, 5)
    grads = torch.autograd.grad(out, (x, w), grad.to(XLA))
    for actual, other in zip(grads, custom_kernel.gmm_backward(grad, lhs, rhs, sizes), strict=True):
        close(actual, other)
    close(ops.gmm(lhs, rhs.mT, sizes, transpose_rhs=True), expected)
    close(custom_kernel.tgmm(lhs.t(), grad, sizes)[2], lhs[2:7].t() @ grad[2:7])
    offset = torch.tensor(2, device=XLA)
    close(ops.gmm(x, w[2:], sizes.to(XLA), group_offset=offset)[2:7], expected[2:7])


def test_products_with_int8() -> None:
    x, w, scale = torch.randn(2, 4), torch.randint(-8, 8, (3, 4), dtype=torch.int8), torch.rand(3)
    close(ops.quantized_matmul_int8(x.to(XLA), w.to(XLA), scale.to(XLA)), (x @ w.float().T) * scale)
    rounded = ops.quantized_matmul_int8(x, w, scale, quantize_activation=True)
    torch.testing.assert_close(rounded, (x @ w.float().T) * scale, rtol=0.05, atol=0.1)
    with pytest.raises(ValueError, match="no zero_point"):
        ops.quantized_matmul_int8(x, w, scale, zero_point=scale)
