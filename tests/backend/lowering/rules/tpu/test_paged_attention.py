"""Paged attention's kernels in Pallas's TPU interpreter, against products; when there are any."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel as ragged_kernel
from jax.extend.mlir import ir
from torch import Tensor

from tests.backend.graphs import traced
from tests.like_eager.rules import to_jax, to_torch
from xla_dynamo.backend import jax_adapter, pipeline
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules.tpu import paged_attention as rules
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn
from xla_dynamo.backend.runtime import topology

ops = torch.ops.xla_dynamo
DECODE, RAGGED = ops.paged_attention.default, ops.ragged_paged_attention.default
BF, F32 = torch.bfloat16, torch.float32


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def drawn(*shape: int) -> Tensor:
    """Numbers that bfloat16 has: kernels round keys and values of float32 to it."""
    return torch.randn(shape).bfloat16().float()


def decode(heads: int, cap: float | None, block: int) -> list[Any]:
    """Three sequences, of which the first is empty; pages that none has are out of range."""
    table = torch.randperm(12, dtype=torch.int32).reshape(3, 4)
    table[0], table[1, 2:] = -1, 99
    pages = drawn(2, 2, 12, 16, 128)
    q = drawn(3, heads, 128) / 8
    return [q, *pages, ints(0, 20, 64), table, block, None, cap]


def ragged(window: int | None, cap: float | None) -> list[Any]:
    """Sequences of one query, of none and of five; the fourth does not count."""
    table = torch.randperm(12, dtype=torch.int32).reshape(4, 3)
    table[0, 2], table[3] = -1, 99
    sequences = ints(7, 16, 40, 99), table, ints(0, 1, 1, 6, 99), ints(3)
    how = 0.1, window, cap, -1e30, 2.0, 0.5
    return [torch.randn(9, 4, 128), torch.randn(12, 16, 4, 128), *sequences, *how, 2, 8, None]


class Loaded:
    """What a reference of the kernel reads: the interpreter knows no reference of another shape."""

    def __init__(self, array: jax.Array) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def reshape(self, *shape: int) -> Loaded:
        return Loaded(self.array.reshape(*shape))

    def __getitem__(self, index: Any) -> jax.Array:
        return self.array[index]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels run in Pallas's interpreter of TPUs; it stores no parts of a reference by a mask."""
    wait = ragged_kernel.MultiPageAsyncCopyDescriptor.wait
    monkeypatch.setattr(
        ragged_kernel.MultiPageAsyncCopyDescriptor, "wait", lambda copy: Loaded(wait(copy)[...])
    )

    def store(ref: Any, value: jax.Array, *, mask: jax.Array) -> None:
        ref[...] = jnp.where(mask, value, ref[...])

    monkeypatch.setattr(pltpu, "store", store)
    target = Target("tpu", matmul_precision="medium")
    products = jax.default_matmul_precision("default")
    with contextlib.ExitStack() as stack:
        stack.enter_context(pltpu.force_tpu_interpret_mode(pltpu.InterpretParams()))
        stack.enter_context(lowering_for(target))
        stack.enter_context(products)
        yield


def computed(rule: Any, arguments: list[Any]) -> Tensor:
    return to_torch(rule(*(to_jax(x) if isinstance(x, Tensor) else x for x in arguments)))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("heads", "cap", "block"), [(4, None, 3), pytest.param(16, 2.0, 4, marks=pytest.mark.slow)]
)
def test_decoding(heads: int, cap: float | None, block: int) -> None:
    arguments = decode(heads, cap, block)
    got = computed(rules.paged_attention, arguments)
    arguments[4] = arguments[4].clamp(0, 11)
    torch.testing.assert_close(got, DECODE(*arguments), rtol=1e-4, atol=1e-5)
    assert got[0].eq(0).all()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("window", "cap"), [(None, None), pytest.param(3, 2.0, marks=pytest.mark.slow)]
)
def test_ragged(window: int | None, cap: float | None) -> None:
    arguments = ragged(window, cap)
    got = computed(rules.ragged_paged_attention, arguments)
    arguments[3] = arguments[3].clamp(0, 11)
    torch.testing.assert_close(got, RAGGED(*arguments), rtol=1e-4, atol=1e-5)
    assert got[6:].eq(0).all()


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of a call of either op."""

    dtype: torch.dtype = BF
    of_pages: torch.dtype | None = None
    heads: int = 8
    key_heads: int = 2
    width: int = 128
    page: int = 16
    pages: int = 4
    scale: float | None = None
    megacore: str | None = None


def call(op: Any, sizes: Sizes) -> list[Any]:
    s = sizes
    kind = s.of_pages or s.dtype
    i = torch.int32
    q = torch.empty(6, s.heads, s.width, dtype=s.dtype)
    if op is DECODE:
        pages = torch.empty(s.key_heads, 9, s.page, s.width, dtype=kind)
        table = torch.empty(6, s.pages, dtype=i)
        return [q, pages, pages.clone(), torch.empty(6, dtype=i), table, 8, s.megacore, None]
    pages = torch.empty(9, s.page, 2 * s.key_heads, s.width, dtype=kind)
    sequences = [torch.empty(*n, dtype=i) for n in ([3], [3, s.pages], [4], [1])]
    return [q, pages, *sequences, 0.1, None, None, -1e30, s.scale, s.scale, None, None, None]


def lowered(op: Any, sizes: Sizes, target: Target) -> Any:
    """The body, or why there is none."""
    return body_of(fx.calls(traced(op, *call(op, sizes)).graph)[0], target)


@pytest.mark.parametrize(
    ("op", "sizes", "needs"),
    [
        (DECODE, Sizes(dtype=F32), "the TPU's own precision"),
        (DECODE, Sizes(dtype=torch.float16), "bfloat16"),
        (DECODE, Sizes(of_pages=F32), "one dtype"),
        (DECODE, Sizes(width=64), "a multiple of 128 features"),
        (DECODE, Sizes(page=4), "a multiple of 8 positions"),
        (DECODE, Sizes(heads=7), "divide the query heads"),
        (DECODE, Sizes(key_heads=1, megacore="kv_head"), "even number"),
        (DECODE, Sizes(pages=30000), "131072 indices"),
        (RAGGED, Sizes(dtype=torch.float16), "bfloat16 or float32"),
        (RAGGED, Sizes(of_pages=torch.float8_e5m2), "8-bit floats with scales"),
        (RAGGED, Sizes(width=256), "128 features"),
        (RAGGED, Sizes(heads=6, key_heads=3), "words"),
        (RAGGED, Sizes(dtype=F32, heads=64, key_heads=64), "a multiple of 8 query heads"),
    ],
)
def test_what_kernels_need(op: Any, sizes: Sizes, needs: str) -> None:
    refusal = lowered(op, sizes, Target("tpu"))
    assert not isinstance(refusal, Body)
    assert needs in refusal.reason


@pytest.mark.tpu
@pytest.mark.parametrize("name", ["v5e:2x2", "v6e:2x2"])
@pytest.mark.parametrize(
    ("op", "sizes", "precision"),
    [
        (DECODE, Sizes(), "highest"),
        (DECODE, Sizes(width=256, page=8, pages=63), "highest"),
        (DECODE, Sizes(dtype=F32, key_heads=8), "medium"),
        (RAGGED, Sizes(), "highest"),
        (RAGGED, Sizes(dtype=F32), "high"),
        (RAGGED, Sizes(of_pages=torch.float8_e5m2, scale=0.5), "highest"),
    ],
)
def test_a_tpu_s_compiler_takes_them(op: Any, sizes: Sizes, precision: str, name: str) -> None:
    body = lowered(op, sizes, Target("tpu", matmul_precision=precision))
    assert isinstance(body, Body)
    assert body.text.count("@tpu_custom_call") == 1
    with jax_adapter.new_context():
        module = ir.Module.parse(body.text)
    assert topology.compile(module, name)[0].code > 0


@pytest.mark.parametrize("op", [DECODE, RAGGED])
@pytest.mark.parametrize(
    "target", [Target("cpu"), Target("tpu", attention="xla")], ids=["CPU", "asked for"]
)
def test_elsewhere_they_are_products(op: Any, target: Target) -> None:
    graph = traced(op, *call(op, Sizes())).graph
    context = Context("test", WayIn.COMPILE, target)
    pipeline.run(Stage.STATIC, graph, context)
    assert not graph.find_nodes(op="call_function", target=op)
    assert not context.lifted.unsupported
