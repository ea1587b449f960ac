"""Kernels in Pallas by torch_xla's names: payloads for a TPU, and functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
import torch_xla.debug.metrics as met
from jax.experimental import pallas
from jax.extend.mlir import ir
from torch import Tensor
from torch_xla import _XLAC
from torch_xla.experimental import custom_kernel

from tests.backend.graphs import traced
from xla_dynamo import FallbackWarning
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import rules  # noqa: F401  (fills RULES)
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.ops import tpu_calls
from xla_dynamo.backend.runtime import topology
from xla_dynamo.errors import NotAvailable

RESULTS = [((8, 128), torch.float32), ((8, 1), torch.int32)]


def add_and_count(x_ref: Any, y_ref: Any, sum_ref: Any, count_ref: Any) -> None:
    sum_ref[...] = x_ref[...] + y_ref[...]
    count_ref[...] = jnp.sum((x_ref[...] > 0).astype(jnp.int32), 1, keepdims=True)


def add(x: jax.Array, y: jax.Array, scale: float = 1.0, *, interpret: bool = False) -> Any:
    """Two results, of x * scale and y."""
    shapes = [
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.ShapeDtypeStruct((x.shape[0], 1), jnp.int32),
    ]
    called = pallas.pallas_call(add_and_count, out_shape=shapes, interpret=interpret)
    return called(x * scale, y)


def lowered(payload: str, operands: list[Tensor], results: str) -> Any:
    op = torch.ops.xla_dynamo.tpu_custom_call.default
    module = traced(lambda *given: op(list(given), payload, results), *operands)
    return body_of(fx.calls(module.graph)[0], Target("tpu"))


@pytest.mark.tpu
@pytest.mark.parametrize("name", ["v5e:2x2", "v6e:2x2"])
def test_a_traced_kernel_is_the_call_that_jax_writes(name: str) -> None:
    x = torch.randn(8, 128)
    payload, tensors = custom_kernel.trace_pallas(add, x, x, 2.0, static_argnums=2)
    assert "custom_call_config" in payload
    assert tensors == [x, x]
    body = lowered(payload, tensors, tpu_calls.as_text(*zip(*RESULTS, strict=True)))
    assert isinstance(body, Body)
    assert body.text.count("@tpu_custom_call") == 1
    with jax_adapter.new_context():
        module = ir.Module.parse(body.text)
    _, hlo = topology.compile(module, name)
    assert 'custom_call_target="tpu_custom_call"' in hlo


@pytest.mark.tpu
def test_one_result_is_no_tuple() -> None:
    def twice(x: jax.Array) -> jax.Array:
        def kernel(x_ref: Any, out_ref: Any) -> None:
            out_ref[...] = x_ref[...] * 2

        return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    x = torch.randn(8, 128)
    payload, _ = custom_kernel.trace_pallas(twice, x)
    body = lowered(payload, [x], "float32[8,128]")
    with jax_adapter.new_context():
        module = ir.Module.parse(body.text)
    assert topology.compile(module, "v5e:2x2")[0].code > 0


def test_payloads_are_kept_if_that_is_asked_for() -> None:
    x = torch.randn(8, 128)
    for hits in (0, 0, 1):
        assert (met.counter_value("trace_pallas_cache_hit") or 0) == hits
        custom_kernel.trace_pallas(add, x, x, use_cache=True)
    custom_kernel.trace_pallas(add, x[:4], x[:4], use_cache=True)
    assert met.counter_value("trace_pallas_cache_hit") == 2


def test_a_payload_is_one_kernel() -> None:
    with pytest.raises(ValueError, match="calls 0 kernels in Pallas, and a payload is one"):
        custom_kernel.trace_pallas(jnp.sin, torch.ones(3))


def test_elsewhere_it_says_what_to_do() -> None:
    x = torch.ones(8, 128)
    with pytest.raises(RuntimeError, match="expected at least 1 input tensor"):
        _XLAC._xla_tpu_custom_call([], "", [], [])
    with pytest.raises(RuntimeError, match=r"\(size=2\).*\(size=1\)"):
        _XLAC._xla_tpu_custom_call([x], "", [(1,), (1,)], [torch.int32])
    for given in (x, x.to("xla")):
        with pytest.raises(NotAvailable, match=r"a kernel for a TPU's compiler.*Run it on a TPU"):
            _XLAC._xla_tpu_custom_call([given], "{}", [x.shape], [x.dtype])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_kernel_as_a_function(compiled: bool) -> None:
    function = custom_kernel.make_kernel_from_pallas(
        add, lambda x, y, *_: [(x.shape, x.dtype), ((x.shape[0], 1), torch.int32)]
    )

    def run(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total, count = function(x + 1, y, 3.0, interpret=True)
        return total * 2, count

    x, y = torch.randn(2, 8, 128)
    device = "cpu" if compiled else "xla"
    given = x.to(device), y.to(device)
    total, count = torch.compile(run, backend="xla")(*given) if compiled else run(*given)
    torch.testing.assert_close(total.cpu(), ((x + 1) * 3 + y) * 2)
    assert torch.equal(count.cpu(), ((x + 1) > 0).sum(1, keepdim=True).int())


def test_results_are_those_that_were_named() -> None:
    function = custom_kernel.make_kernel_from_pallas(add, lambda x, y: [(x.shape, x.dtype)])
    x = torch.ones(8, 128)
    with pytest.raises(ValueError, match="its output_shape_dtype_fn says"):
        function(x, x, interpret=True)


def test_a_cpu_interprets_kernels_only() -> None:
    function = custom_kernel.make_kernel_from_pallas(add, lambda x, y: RESULTS)
    compiled = torch.compile(lambda x: function(x, x)[0], backend="xla")
    with (
        pytest.warns(FallbackWarning, match="Pass interpret=True to pallas_call"),
        pytest.raises(ValueError, match="Only interpret mode is supported on CPU"),
    ):
        compiled(torch.ones(8, 128))
