"""An int that only selects stays an argument: one executable for all values, eager's numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo


def rows(x: Tensor, t: int) -> Tensor:
    y = x * 2
    y[t : t + 2] = x[t + 1]
    return y.sin()


def several(x: Tensor, t: int) -> Tensor:
    taken = x[t] * x[t + 1] + x.narrow(0, t // 2, 2).sum(0)
    return taken + x.roll(t, 1)[0] + torch.arange(t, t + 9) * x[-t - 1]


SELECTING: dict[str, Callable[[Tensor, int], Tensor]] = {
    "select": lambda x, t: x[t] * 2,
    "slice": lambda x, t: x[:, t : t + 2] * 2,
    "remainder": lambda x, t: x[(t - 7) % 3] * 2,
    "from the end": lambda x, t: x[t - 9] + x[-t],
    "product": lambda x, t: x[2 * t - 4] * 2,
    "roll": lambda x, t: x.roll((t, -t), (0, 1)) * 2,
    "scatter": lambda x, t: torch.select_scatter(x, x[0], 1, t) * 2,
    "write": rows,
    "several": several,
    "number too": lambda x, t: x[t] * t,
}


@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize("grad", [False, True])
def test_one_executable_for_all_values(name: str, grad: bool) -> None:
    function = SELECTING[name]
    compiled = torch.compile(function, backend="xla", options={"fallback": "error"})
    counts = []
    for t in (2, 3, 4, 5, 6):
        x = torch.linspace(-1, 1, 81, dtype=torch.float64).view(9, 9)
        x, other = x.clone().requires_grad_(grad), x.clone().requires_grad_(grad)
        actual, expected = compiled(x, t), function(other, t)
        torch.testing.assert_close(actual, expected)
        if grad:
            actual.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(x.grad, other.grad)
        counts.append(len(xla_dynamo.compiles()))
    assert counts[1:] == [counts[1]] * 4  # Dynamo captures once more for the second value


def test_a_sampler() -> None:
    sigmas = torch.linspace(1, 0, 21)

    @torch.compile(backend="xla")
    def step(x: Tensor, i: int) -> Tensor:
        return x + x.cos() * (sigmas[i + 1] - sigmas[i])

    x = other = torch.ones(3)
    for i in range(20):
        x, other = step(x, i), other + other.cos() * (sigmas[i + 1] - sigmas[i])
    torch.testing.assert_close(x, other)
    assert len(xla_dynamo.compiles()) == 2


def test_sizes_are_specialized_as_before() -> None:
    compiled = torch.compile(lambda x, t: x[:t].sum() + x[t], backend="xla", dynamic=True)
    for t in (2, 3, 4):
        x = torch.arange(8.0)
        torch.testing.assert_close(compiled(x, t), x[:t].sum() + x[t])
    assert len(xla_dynamo.compiles()) == 3


def test_a_returned_slice_is_a_view() -> None:
    compiled = torch.compile(lambda x, t: x[t], backend="xla", dynamic=True)
    x = torch.arange(12.0).view(4, 3)
    for t in (2, 3):
        compiled(x, t).fill_(-1)
    torch.testing.assert_close(x[2:], torch.full((2, 3), -1.0))


def test_an_index_out_of_range_raises() -> None:
    compiled = torch.compile(lambda x, t: x[t] * 2, backend="xla", dynamic=True)
    x = torch.arange(4.0)
    for t in (2, 3, -1):
        assert compiled(x, t) == x[t] * 2
    with pytest.raises(Exception, match=r"out of (range|bounds)"):
        compiled(x, 4)
