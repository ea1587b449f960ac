"""What is on a device with memory of its own is padded and cut there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

import xla_dynamo
from tests.backend.odd_backward import Odd
from tests.backend.separate_memory import separate_memory as separate_memory
from xla_dynamo.backend.executable import device_padding, padded_layout
from xla_dynamo.backend.executable.device_padding import DevicePadding
from xla_dynamo.backend.executable.padded_layout import Layout
from xla_dynamo.backend.passes.padding.layouts import Dim, plain, with_factors
from xla_dynamo.errors import UnsupportedOp

s, t = sympy.symbols("s0 s1", positive=True, integer=True)
REAL, BUCKETS = {s: 3, t: 2}, {s: 4, t: 4}
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "dims", [(plain(s), plain(5), plain(t)), (with_factors(s * t, [s, t]), plain(2)), (plain(s),)]
)
@pytest.mark.parametrize("poison", [False, True])
def test_graphs_do_what_the_host_does(
    monkeypatch: pytest.MonkeyPatch, dims: tuple[Dim, ...], poison: bool
) -> None:
    monkeypatch.setattr(padded_layout, "poison", poison)
    reasons: list[str] = []

    def compile(graph: Graph, reason: str) -> Callable[[list[Any]], Any]:
        reasons.append(reason)
        module = GraphModule({}, graph)
        return lambda arguments: [part.contiguous() for part in module(*arguments)]

    monkeypatch.setattr(torch.ops.aten.view, "default", torch.ops.aten.reshape.default)
    layout = Layout(dims, REAL, BUCKETS)
    there = DevicePadding(compile)
    x = torch.randn(layout.shape)
    assert there.padding(layout, x.dtype, CPU) is None, "the first one goes through the host"
    pad = there.padding(layout, x.dtype, CPU)
    assert pad is there.padding(layout, x.dtype, CPU)
    assert pad is not None
    (padded,) = pad([x])
    torch.testing.assert_close(padded, layout.pad(x), equal_nan=True)
    assert there.cutting(layout, x.dtype, CPU) is None
    cut = there.cutting(layout, x.dtype, CPU)
    assert cut is not None
    assert torch.equal(cut([padded])[0], x)
    assert reasons == [
        f"{layout.shape} is padded to {layout.padded}",
        f"{layout.shape} is cut out of {layout.padded}",
    ]


def test_what_does_not_compile_goes_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def compile(graph: Graph, reason: str) -> Any:
        tried.append(reason)
        raise UnsupportedOp("no")

    monkeypatch.setattr(device_padding, "_is_there", lambda x: True)
    there, layout, x = DevicePadding(compile), Layout((plain(s),), REAL, BUCKETS), torch.randn(3)
    for _ in range(4):
        assert torch.equal(there.cut(layout, there.pad(layout, x), (1,)), x)
    assert len(tried) == 2


@pytest.mark.usefixtures("separate_memory")
def test_a_step_copies_what_the_exact_one_does() -> None:
    """Inputs that forward saves are padded and uploaded once; the numbers of sizes, too."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5))
    moved = []
    for bucket in (None, [8]):
        torch.compiler.reset()
        run = torch.compile(model, backend="xla", options={"bucket": bucket})
        for _ in range(2):
            x = torch.randn(5, 3)
            torch._dynamo.mark_dynamic(x, 0)
            xla_dynamo.reset_metrics()
            run(x).sum().backward()
        moved.append(xla_dynamo.transfers())
    exact, padded = moved
    assert (padded.to_device, padded.to_host) == (exact.to_device, exact.to_host)
    assert padded.bytes_to_device == exact.bytes_to_device + 3 * (3 + 5) * 4


@pytest.mark.usefixtures("separate_memory")
def test_saved_values_that_backward_pads_otherwise_stay_on_the_device() -> None:
    """Forward of 5 rows was padded before backward refused it: its saved value is cut there."""
    run = torch.compile(lambda x: Odd.apply(x * 2), backend="xla", options={"bucket": [8]})

    def given() -> Tensor:
        x = torch.randn(5, 3, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xla_dynamo.BucketWarning)
        inputs = [given() for _ in range(3)]
        results = [run(x) for x in inputs]
        xla_dynamo.reset_metrics()
        for x, result in zip(inputs, results, strict=True):
            before = xla_dynamo.transfers()
            result.sum().backward()
            slope = 1 + (x.detach() * 2).sin().median(0).values
            torch.testing.assert_close(x.grad, (2 * slope).expand(5, 3))
        after = xla_dynamo.transfers()
    assert (after.to_device - before.to_device, after.to_host - before.to_host) == (1, 1)
