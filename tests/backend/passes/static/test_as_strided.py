"""as_strided addresses the memory of the tensor that its operand is a view of, as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo

X = torch.arange(120.0).reshape(4, 5, 6)

OF_VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda x: x[1:3].as_strided((2, 3), (6, 1)),
    "slice, from the start of memory": lambda x: x[1:3].as_strided((2, 3), (6, 1), 0),
    "slice, beyond its end": lambda x: x[:1].as_strided((10,), (10,), 20),
    "narrow": lambda x: x.narrow(1, 1, 2).as_strided((2, 3), (20, 1)),
    "step": lambda x: x[:, ::2].as_strided((3, 2), (4, 2)),
    "transpose": lambda x: x.transpose(0, 1).as_strided((3, 4), (6, 1), 2),
    "transposed copy": lambda x: x.transpose(0, 1).contiguous().as_strided((3, 4), (6, 1), 2),
    "diagonal": lambda x: x.diagonal().as_strided((3, 2), (5, 1), 1),
    "unfold": lambda x: x.flatten().unfold(0, 3, 2).as_strided((4, 2), (7, 1), 3),
    "expand": lambda x: x[:1, :1].expand(3, 4, 6).as_strided((2, 3), (6, 1), 4),
    "unsafe view": lambda x: torch.ops.aten._unsafe_view(x[1:3], [12, 5]).as_strided((2,), (8,), 0),
    "twice": lambda x: x.as_strided((4,), (2,), 6).as_strided((2, 2), (1, 1)),
    "twice, where the first begins": lambda x: x.as_strided((4,), (1,), 2)[1:3].as_strided(
        (1,), (1,)
    ),
    "twice, from the start of memory": lambda x: (
        x.as_strided((2, 2), (2, 1), 2).t().as_strided((3,), (1,), 1)
    ),
    "twice, beyond the first": lambda x: (
        x.as_strided((4,), (1,)).expand(1, 4)[1:1].as_strided((2,), (3,))
    ),
    "twice, the second in all memory": lambda x: x.as_strided((4,), (1,))[2:].as_strided(
        (2,), (5,), 1
    ),
    "channels last": lambda x: (
        x.reshape(1, 4, 5, 6).to(memory_format=torch.channels_last).as_strided((3, 4), (4, 1))
    ),
}


@pytest.mark.parametrize("name", OF_VIEWS)
def test_as_strided_of_a_view(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        return OF_VIEWS[name](x * 2) + 1

    compiled = torch.compile(function, backend="xla", fullgraph=True)
    torch.testing.assert_close(compiled(X), function(X))
    assert xla_dynamo.counters() == {}


@pytest.mark.parametrize("name", OF_VIEWS)
def test_as_strided_of_a_view_of_an_argument(name: str) -> None:
    """A part of a larger tensor, another at each call: offsets count from that one's start."""
    whole = torch.arange(140.0)

    def function(x: Tensor) -> Tensor:
        return OF_VIEWS[name](x) + 1

    compiled = torch.compile(function, backend="xla", fullgraph=True)
    for start in (0, 7, 20):
        x = whole[start : start + 120].view(4, 5, 6)
        torch.testing.assert_close(compiled(x), function(x))
    assert xla_dynamo.counters() == {}


NINES = torch.full((2,), 9.0)
SCATTERS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda x: torch.as_strided_scatter(x[1:3], NINES, (2,), (7,), 40),
    "slice, where it begins": lambda x: torch.as_strided_scatter(x[1:3], NINES, (2,), (7,)),
    "transpose": lambda x: torch.as_strided_scatter(x.mT, NINES, (2,), (7,), 3),
    "whole": lambda x: torch.as_strided_scatter(x, NINES, (2,), (7,), 3),
    "copies": lambda x: torch.as_strided_scatter(x[:1, :1].expand(3, 4, 6), NINES, (2,), (1,)),
}


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("scale", [1, 2])
def test_a_scatter_to_a_view(name: str, scale: int) -> None:
    """Of an argument, and of what is computed."""

    def function(x: Tensor) -> Tensor:
        return SCATTERS[name](x if scale == 1 else x * scale) + 1

    compiled = torch.compile(function, backend="xla", fullgraph=True)
    torch.testing.assert_close(compiled(X), function(X))


def test_an_argument_in_another_order() -> None:
    x = X.reshape(1, 4, 5, 6).to(memory_format=torch.channels_last)

    def function(x: Tensor) -> Tensor:
        return x.as_strided((3, 4), (4, 1), 8) + 1

    compiled = torch.compile(function, backend="xla", fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))
    assert xla_dynamo.counters() == {}


def test_an_argument_is_read_where_it_is_in_memory() -> None:
    """It may be a part of a larger tensor, another part at each call."""
    whole = torch.arange(20.0)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.as_strided((3,), (4,), 1) + 1, x.as_strided((2,), (3,)) * 2

    compiled = torch.compile(function, backend="xla", fullgraph=True)
    for start in (5, 0, 11):
        part = whole[start : start + 3]
        torch.testing.assert_close(compiled(part), function(part))
    assert xla_dynamo.counters() == {}


def test_memory_that_an_argument_has_not() -> None:
    compiled = torch.compile(lambda x: x.as_strided((3,), (4,), 1) + 1, backend="xla")
    compiled(torch.arange(20.0)[5:8])
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(torch.arange(3.0))


def test_writes_to_copies_of_one_element() -> None:
    """AOTAutograd writes all copies back, also those that are as they were."""

    @torch.compile(backend="xla")
    def add(x: Tensor) -> None:
        x.as_strided((1, 2), (0, 0)).select(-1, 0).add_(1)

    x = torch.tensor(3.0)
    with pytest.raises(RuntimeError, match="refers to a single memory location") as raised:
        add(x)
    assert "test_as_strided.py" in str(raised.value)
    assert "clone() that tensor" in str(raised.value)
    assert x == 3
