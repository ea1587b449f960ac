"""torch.cond, while_loop, scan and map on tensors of the device, against the same on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan, while_loop

from tests.like_eager.compiled import fallbacks
from tests.like_eager.lazy import assert_lockstep

X = torch.arange(6.0).reshape(3, 2)
PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "cond": lambda x: torch.cond(x.sum() > 3, lambda x: x.sin(), lambda x: x - 1, (x,)),
    "cond, the other branch": lambda x: torch.cond(x.sum() > 99, torch.sin, torch.cos, (x,)),
    "while_loop": lambda x: while_loop(
        lambda i, x: x.sum() < 4000, lambda i, x: (i + 1, x * 2), (x.new_zeros(()), x)
    ),
    "scan": lambda x: scan(lambda c, row: (c + row * row, c * row), x.new_zeros(2), x),
    "map": lambda x: map_(lambda row: row * row.sum(), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_eagers_numbers(name: str) -> None:
    assert_lockstep(PROGRAMS[name], X)
    with torch.inference_mode():
        assert_lockstep(PROGRAMS[name], X)
    assert fallbacks() == {}


@pytest.mark.parametrize("name", ["cond", "scan", "map"])
def test_gradients(name: str) -> None:
    def gradient(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        result = PROGRAMS[name](x)
        (result[1] if isinstance(result, (list, tuple)) else result).sum().backward()
        assert x.grad is not None
        return x.grad

    assert_lockstep(gradient, X)


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
def test_inside_a_compiled_function_of_the_devices_tensors() -> None:
    compiled = torch.compile(PROGRAMS["cond"], backend="xla", fullgraph=True)
    for x in (X, -X):
        torch.testing.assert_close(compiled(x.to("xla")).cpu(), PROGRAMS["cond"](x))
