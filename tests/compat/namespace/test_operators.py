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
