"""Exported programs -> StableHLO modules that, compiled and run, give eager's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from xla_dynamo import UnsupportedOp
from xla_dynamo.backend.executable.exported import lower_exported
from xla_dynamo.backend.runtime import pjrt, transfers


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def run(module: nn.Module, *args: Any, key: Tensor | None = None) -> list[Tensor]:
    """The results of the exported module's StableHLO, compiled by itself and run on the CPU."""
    exported = torch.export.export(module, args)
    lowered = lower_exported(exported)
    device = pjrt.device("cpu")
    state = [exported.state_dict[name] for name in exported.graph_signature.parameters]
    state += [exported.state_dict[name] for name in exported.graph_signature.buffers]
    inputs = [*state, *(arg for arg in args if isinstance(arg, Tensor))]
    if key is not None:
        inputs.append(key)
    function = next(
        op for op in lowered.module.body.operations if op.attributes["sym_name"].value == "main"
    )
    outputs = [_signature(kind) for kind in function.type.results]
    given = [(tuple(x.shape), np.dtype(str(x.numpy().dtype))) for x in map(Tensor.detach, inputs)]
    executable = pjrt.compile(lowered.module, device, given, outputs, {})
    arrays = [transfers.upload(x.detach(), device) for x in inputs]
    return [transfers.download(array) for array in executable(*arrays)]


def _signature(kind: Any) -> tuple[tuple[int, ...], np.dtype]:
    names = {"f32": "float32", "f64": "float64", "i64": "int64", "i1": "bool"}
    return tuple(kind.shape), np.dtype(names[str(kind.element_type)])


def overlapping(x: Tensor) -> Tensor:
    v = x.clone().view(4, 2)
    v[:2] += v[:2].flip(0)
    return v


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (overlapping, (torch.arange(8.0),)),
        (lambda x: (x + 1e8) - 1e8, (torch.tensor([49.0]),)),
        (lambda x: x / 49.0, (torch.full((3,), 49.0),)),
        (lambda x: (x * 2).t().as_strided((2, 2), (1, 2)), (torch.randn(3, 4),)),
        (lambda x: nn.functional.cross_entropy(x, torch.arange(3)), (torch.randn(3, 5),)),
        (lambda x, n, s: x * 2 if s == "double" else x, (torch.randn(3), None, "double")),
        (lambda x, n: x + n, (torch.randn(3), 4)),
        (lambda x: (x, None, x + 1), (torch.randn(3),)),
    ],
)
def test_exported_is_eager(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    expected = function(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    actual = run(Function(function), *args)
    for ours, theirs in zip(actual, (e for e in expected if e is not None), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_parameters_and_buffers_come_before_inputs() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    x = torch.randn(5, 4)
    (actual,) = run(model, x)
    torch.testing.assert_close(actual, model(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.dropout(x, 0.5, True),
        lambda x: torch.rand_like(x),
        lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
    ],
)
def test_random_ops_take_a_key_as_the_last_argument(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.ones(1000)
    key, other = (torch.tensor([0, n], dtype=torch.uint32) for n in (1, 2))
    (first,) = run(Function(function), x, key=key)
    (again,) = run(Function(function), x, key=key)
    (different,) = run(Function(function), x, key=other)
    assert torch.equal(first, again)
    assert not torch.equal(first, different)
    assert abs(first.mean().item() - function(x).mean().item()) < 0.15


def test_shapes_that_depend_on_data_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOp, match=r"aten\.nonzero.*depends on values"):
        run(Function(torch.nonzero), torch.ones(3))


def test_dynamic_shapes_are_refused_with_what_to_do() -> None:
    exported = torch.export.export(
        Function(torch.sin),
        (torch.randn(4, 3),),
        dynamic_shapes=(({0: torch.export.Dim("n", min=2)},),),
    )
    with pytest.raises(UnsupportedOp, match="Export the model without dynamic_shapes"):
        lower_exported(exported)
