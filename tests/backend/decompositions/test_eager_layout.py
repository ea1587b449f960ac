"""Strides of pointwise results whose operands differ in the order of dimensions: eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo.compat  # noqa: F401  (the xla device)

Op = Callable[[Tensor, Tensor], Tensor]

OPS: dict[str, Op] = {
    "complex": lambda x, y: torch.complex(*torch.broadcast_tensors(x, y)),
    "copysign": torch.copysign,
    "div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "heaviside": torch.heaviside,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "xlog1py": torch.special.xlog1py,
    "xlogy": torch.xlogy,
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(
        *(z / 20 for z in torch.broadcast_tensors(x, y)), reduction="none"
    ),
    "huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "ldexp": lambda x, y: torch.ldexp(x, y.int()),
    "a power of a number": lambda x, y: 2.0**x + 2 ** y.int(),
    "isin": lambda x, y: torch.isin(x, y.flatten()),
    "log_sigmoid": lambda x, y: F.logsigmoid(x),
    "one_hot": lambda x, y: F.one_hot(x.long() % 3, 3),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True),
    "batch_norm, frozen": lambda x, y: F.batch_norm(x, *_statistics(x)),
    "add": torch.add,
    "hypot": torch.hypot,
}


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])


def _layouts(device: str) -> list[Tensor]:
    """Of shapes that broadcast, rows or columns first in memory."""
    wide = torch.arange(1.0, 7, device=device).reshape(2, 3)
    columns = torch.arange(1.0, 7, device=device).reshape(3, 2).t()
    deep = torch.arange(1.0, 13, device=device).reshape(2, 2, 3)
    return [wide, columns, deep, deep.transpose(0, 1), deep[:, :1]]


@pytest.mark.parametrize("name", OPS)
def test_strides(name: str) -> None:
    op = OPS[name]
    compiled = torch.compile(op, backend="xla", dynamic=False)
    pairs = list(itertools.product(_layouts("cpu"), repeat=2))
    lazy = itertools.product(_layouts("xla:0"), repeat=2)
    for (x, y), (mine, other) in zip(pairs, lazy, strict=True):
        assert op(mine, other).stride() == op(x, y).stride(), (x.shape, x.stride(), y.stride())
    for x, y in pairs[:4]:
        assert compiled(x, y).stride() == op(x, y).stride(), (x.stride(), y.stride())


def _chain(x: Tensor) -> Tensor:
    """Elements by their places in memory, after views."""
    y = torch.copysign(x, x.mT.nan_to_num())
    return torch.cat([y.as_strided((2,), (1,)), y.t().neg().as_strided((2,), (1,))])


@pytest.mark.parametrize("differentiated", [False, True])
def test_as_strided(differentiated: bool) -> None:
    x = torch.tensor([[3.0, -0.5], [-4.0, 1.0]])
    expected = _chain(x)
    compiled = torch.compile(_chain, backend="xla")
    assert torch.equal(compiled(x.clone().requires_grad_(differentiated)), expected)
    assert torch.equal(_chain(x.to("xla:0").requires_grad_(differentiated)).cpu(), expected)


def test_results_that_autograd_makes_again() -> None:
    """By views of a result that nobody gets."""

    def views(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.copysign(x, x.mT.nan_to_num())
        return y.t()[0], y[0]

    x = torch.tensor([[3.0, -0.5], [-4.0, 1.0]]).requires_grad_()
    assert all(map(torch.equal, torch.compile(views, backend="xla")(x), views(x)))
