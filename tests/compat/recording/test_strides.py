"""Strides of tensors of the device: eager's, by which views and copies are told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor

import xla_dynamo
from tests.like_eager.lazy import XLA, assert_lockstep, assert_same

Make = Callable[[Tensor], Tensor]


def _rows(device: Any, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.arange(float(count)).reshape(shape).to(device)


MADE: dict[str, Make] = {
    "itself": lambda x: x,
    "transposed": lambda x: x.t(),
    "every other column": lambda x: x[:, ::2],
    "a column": lambda x: x[:, 1:2],
    "expanded": lambda x: x.expand(3, 2, 6),
    "a diagonal": lambda x: x.diagonal(),
    "a sum of a transposed one": lambda x: x.t() + 1,
    "a comparison of a transposed one": lambda x: x.t() > 1,
    "a clone of a transposed one": lambda x: x.t().clone(),
    "a clone of a part": lambda x: x[:, ::2].clone(),
    "a product of transposed ones": lambda x: x.t() @ x,
    "a cast of a transposed one": lambda x: x.t().double(),
    "empty_like": lambda x: torch.empty_like(x.t()).zero_(),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 3), (1, 2)).zero_(),
    "empty_strided": lambda x: torch.empty_strided((2, 3), (1, 4), device=x.device).zero_(),
    "channels_last": lambda x: x.view(1, 2, 2, 3).to(memory_format=torch.channels_last),
    "empty channels_last": lambda x: torch.empty(
        2, 3, 4, 5, device=x.device, memory_format=torch.channels_last
    ).fill_(3),
    "a convolution": lambda x: torch.conv2d(
        x.view(1, 2, 2, 3).contiguous(memory_format=torch.channels_last),
        torch.ones(3, 2, 1, 1, device=x.device),
    ),
    "written in place": lambda x: x.t().mul_(2),
    "written in place, of a part": lambda x: x[:, ::2].mul_(2),
    "filled by a tensor of other strides": lambda x: torch.zeros(6, 2, device=x.device).copy_(
        x.t()
    ),
    "moved": lambda x: (
        x.cpu().view(1, 2, 2, 3).to(memory_format=torch.channels_last).to(x.device, copy=True)
    ),
    "detached": lambda x: x.t().detach(),
    "sorted": lambda x: x.t().sort(0).values,
    "_reshape_alias": lambda x: torch.ops.aten._reshape_alias(x, (3, 4), (4, 1)),
    "of shape [6, 0]": lambda x: x.t()[:, :0],
}


@pytest.mark.parametrize("name", MADE)
def test_strides_are_those_of_eager(name: str) -> None:
    expected, actual = (MADE[name](_rows(device, 2, 6)) for device in ("cpu", XLA))
    assert actual.stride() == expected.stride()
    assert actual.is_contiguous() == expected.is_contiguous()
    assert_same(actual, expected)
    if actual.numel():
        assert actual.cpu().stride() == expected.to("cpu", copy=True).stride()


COPIES: dict[str, Make] = {
    "contiguous of a transposed one": lambda x: x.t().contiguous(),
    "contiguous of a part": lambda x: x[:, ::2].contiguous(),
    "reshape of a transposed one": lambda x: x.t().reshape(-1),
    "flatten of an expanded one": lambda x: x.expand(3, 2, 6).flatten(),
    "contiguous in another memory format": lambda x: x.view(1, 2, 2, 3).contiguous(
        memory_format=torch.channels_last
    ),
    "to a memory format": lambda x: x.view(1, 2, 2, 3).to(memory_format=torch.channels_last),
}
ALIASES: dict[str, Make] = {
    "contiguous": lambda x: x.contiguous(),
    "reshape": lambda x: x.reshape(3, 4),
    "flatten": lambda x: x.flatten(),
    "transposed twice": lambda x: x.t().t().contiguous(),
    "reshape of rows": lambda x: x[:, :4].reshape(2, 2, 2),
    "to where it is": lambda x: x.to(x.device),
}


@pytest.mark.parametrize("name", [*COPIES, *ALIASES])
def test_a_write_reaches_what_is_a_view_and_no_copy(name: str) -> None:
    make = {**COPIES, **ALIASES}[name]
    seen = []
    for device in ("cpu", XLA):
        x = _rows(device, 2, 6)
        made = make(x)
        made.add_(100)
        seen.append((x, made))
    (x, made), (xla_x, xla_made) = seen
    assert_same([xla_x, xla_made], [x, made])
    assert torch.equal(x, _rows("cpu", 2, 6)) == (name in COPIES)


@pytest.mark.parametrize("write", [False, True])
def test_as_strided_addresses_memory_in_its_order(write: bool) -> None:
    def run(device: Any) -> list[Tensor]:
        x = _rows(device, 4, 6).t().clone()  # in memory as 4 x 6
        image = _rows(device, 1, 2, 2, 3).to(memory_format=torch.channels_last)
        parts = [
            x.as_strided((3, 2), (4, 1), 1),
            image.as_strided((6,), (2,)),
            x[1:].as_strided((2,), (1,)),
        ]
        if write:
            for part in parts:
                part.mul_(10)
        return [x, image, *parts]

    assert_same(run(XLA), run("cpu"))


def test_a_view_that_strides_do_not_allow_is_a_copy_as_scripts_for_torch_xla_expect() -> None:
    x = _rows(XLA, 2, 3).requires_grad_()
    flat = x.t().view(-1)
    assert_same(flat.detach(), torch.tensor([0.0, 3.0, 1.0, 4.0, 2.0, 5.0]))
    (flat * torch.arange(6.0, device=XLA)).sum().backward()
    assert_same(x.grad, torch.tensor([[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]))
    with pytest.raises(RuntimeError, match=r"shape '.5.' is invalid for input of size 6"):
        x.t().view(5)


def test_strides_alone_compile_nothing() -> None:
    def step(x: Tensor) -> list[float]:
        return (x * 2).flatten().tolist()

    step(_rows(XLA, 3, 3))
    before = len(xla_dynamo.compiles())
    step(_rows("cpu", 3, 3).t().contiguous().t().to(XLA))
    assert len(xla_dynamo.compiles()) == before


def test_as_strided_after_an_in_place_transpose() -> None:
    def run(device: Any) -> list[Tensor]:
        x = _rows(device, 2, 3)
        x.t_()
        part = x.as_strided((2, 2), (1, 2), 1)
        part.add_(10)
        return [x, part]

    assert_same(run(XLA), run("cpu"))


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (7, 2), (3, 3), (3, 3, 3), (0, 2), (4,)], ids=str)
def test_fill_diagonal_of_a_part(shape: tuple[int, ...], wrap: bool) -> None:
    def run(device: Any) -> object:
        whole = _rows(device, 2, *shape)
        part = whole[1]
        try:
            assert part.fill_diagonal_(-1, wrap) is part
        except RuntimeError as error:
            return str(error)
        return [whole, part]

    if len(shape) == 1:
        assert run(XLA) == run("cpu")
    else:
        assert_same(run(XLA), run("cpu"))


def test_gradient_of_fill_diagonal_of_a_part() -> None:
    def run(device: Any) -> list[Tensor | None]:
        x = _rows(device, 4, 3).requires_grad_()
        y = x * 2
        y[1:].fill_diagonal_(5.0)
        (y * y).sum().backward()
        return [x.grad, y.detach()]

    assert_same(run(XLA), run("cpu"))


STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": lambda x: torch.as_strided_copy(x, (2, 1), (1, 1), 2),
    "copy from where it begins": lambda x: torch.as_strided_copy(x, (2,), (1,)),
    "scatter": lambda x: torch.as_strided_scatter(x, x.new_ones(2, 1) * 9, (2, 1), (1, 1), 2),
    "scatter from where it begins": lambda x: torch.as_strided_scatter(
        x, x.new_ones(2) * 9, (2,), (1,)
    ),
}
OPERANDS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x,
    "slice": lambda x: x[1:],
    "transpose": lambda x: x.view(2, 3).t(),
    "column": lambda x: x.view(2, 3)[:, 1],
    "steps": lambda x: x[::2],
    "copies": lambda x: x[1:2].expand(4),
}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("op", STRIDED)
def test_copies_and_scatters_address_memory(op: str, operand: str) -> None:
    def chain(x: Tensor) -> list[Tensor]:
        return [STRIDED[op](OPERANDS[operand](x * 1))]

    assert_lockstep(chain, torch.arange(6.0))


@pytest.mark.parametrize("operand", ["whole", "slice"])
def test_gradients_of_a_scatter_to_a_part(operand: str) -> None:
    def chain(x: Tensor) -> list[Tensor]:
        source = torch.ones(2, device=x.device, requires_grad=True)
        y = torch.as_strided_scatter(OPERANDS[operand](x * 1), source, (2,), (1,))
        weights = torch.arange(1.0, 1 + y.numel(), device=y.device).view(y.shape)
        return list(torch.autograd.grad([y], [x, source], [weights]))

    assert_lockstep(chain, torch.arange(6.0).requires_grad_())


def test_scatters_beyond_the_memory_are_refused() -> None:
    x = torch.arange(6.0, device=XLA)
    for part in (x, x[2:], x[:1].expand(3)):
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            torch.as_strided_scatter(part, x[:2], (2,), (1,), 5)
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            torch.as_strided_copy(part, (2,), (1,), 5)


VIEW_COPIES: dict[str, Callable[[Tensor], Any]] = {
    "narrow": lambda x: torch.narrow_copy(x, 1, 2, 1),
    "slice": lambda x: torch.slice_copy(x, 1, 1, 3),
    "select": lambda x: torch.select_copy(x, 1, 1),
    "transpose": lambda x: torch.transpose_copy(x, 0, 1),
    "permute": lambda x: torch.permute_copy(x, (2, 0, 1)),
    "t": lambda x: torch.t_copy(x[0]),
    "expand": lambda x: torch.expand_copy(x[:, :1], x.shape),
    "diagonal": lambda x: torch.diagonal_copy(x, 0, 0, 1),
    "unfold": lambda x: torch.unfold_copy(x, 0, 2, 1),
    "split": lambda x: torch.split_copy(x, 2, 1)[0],
    "split with sizes": lambda x: torch.split_with_sizes_copy(x, (1, 3), 1)[1],
    "unbind": lambda x: torch.unbind_copy(x, 1)[0],
    "squeeze": lambda x: torch.squeeze_copy(x[:, 2:3]),
    "unsqueeze": lambda x: torch.unsqueeze_copy(x.mT, 0),
    "alias": lambda x: torch.alias_copy(x.mT),
    "view": lambda x: torch.view_copy(x, (12, 5)),
    "another dtype": lambda x: torch.view_copy(x, dtype=torch.int32),
    "real": lambda x: torch.view_as_real_copy(torch.complex(x, x + 1).mT),
}


@pytest.mark.parametrize("op", VIEW_COPIES)
@pytest.mark.parametrize("grad", [False, True])
def test_view_copies_are_contiguous(op: str, grad: bool) -> None:
    """So that a view of all their elements is one: what is written to it is written to them."""
    strides: list[Any] = []

    def chain(x: Tensor) -> list[Tensor]:
        y = VIEW_COPIES[op](x)
        strides.append((y.stride(), y.requires_grad))
        with torch.no_grad():
            y.view(-1).add_(1)
        return [y.detach(), *(torch.autograd.grad(y.sum(), x) if y.requires_grad else ())]

    assert_lockstep(chain, torch.arange(60.0).reshape(5, 4, 3).requires_grad_(grad))
    assert strides[0] == strides[1]
