"""Writes to what is there twice (expand, unfold, as_strided): exact, or refused as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor

from tests.like_eager.lazy import XLA, assert_lockstep, assert_same

REFUSED: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda x: x.add_(1),
    "erf_": lambda x: x.erf_(),
    "cumsum_": lambda x: x.cumsum_(0),
    "copy_": lambda x: x.copy_(torch.ones(3, 2)),
    "normal_": lambda x: x.normal_(),
    "bernoulli_": lambda x: x.bernoulli_(0.5),
    "addmm_": lambda x: x.addmm_(x, torch.ones(2, 2, device=x.device)),
    "index_copy_": lambda x: x.index_copy_(0, torch.tensor([1], device=x.device), x[:1].clone()),
    "setitem": lambda x: x.__setitem__(slice(1, 3), torch.ones(2, 2)),
    "foreach": lambda x: torch._foreach_erf_([x]),
    "foreach add": lambda x: torch._foreach_add_([x, x.clone()], 1),
    "relu of a gradient": lambda x: x.clone().requires_grad_().mul(2)[:, :1].expand(3, 2).relu_(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_write_to_elements_that_share_memory_is_refused(name: str) -> None:
    text = "more than one element of the written-to tensor"
    for device in ("cpu", XLA):
        base = torch.full((3, 1), 2.0, device=device)
        with pytest.raises(RuntimeError, match=text):
            REFUSED[name](base.expand(3, 2))
        assert base.tolist() == [[2.0], [2.0], [2.0]]


# What eager does with them, in memory where 1e20 and infinities stand.
WRITES: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda x: x.expand(3, 2).add_(1),
    "fill_ of twice the same": lambda x: x[:, :1].expand(3, 4).fill_(1.0),
    "zero_ of twice the same": lambda x: x.unsqueeze(0).expand(2, 3, 2).zero_(),
    "copy_": lambda x: x.expand_as(x).copy_(torch.ones(3, 2)),
    "copy_ of itself": lambda x: [y.copy_(y) for y in [x[:, :1].expand(3, 4)]],
    "more dimensions": lambda x: x.expand(1, 3, 2).mul_(0),
    "a row": lambda x: x[:, :1].expand(3, 2)[:, 0].fill_(1.0),
    "erf_ of a part": lambda x: x.expand(4, 3, 2)[2].erf_(),
    "of a transpose": lambda x: x.t().expand(2, 3)[1:].sub_(1e20),
    "setitem": lambda x: x.expand(4, 3, 2)[0].__setitem__(1, 5.0),
    "index_put_": lambda x: x.expand(3, 2).__setitem__(torch.tensor([0, 2], device=x.device), 1.0),
    "masked": lambda x: x.expand(3, 2).masked_fill_(x > 1, 1.0),
    "a list": lambda x: torch._foreach_add_([x.expand(3, 2), torch.ones(2, device=x.device)], 1),
    "random": lambda x: x.expand(3, 2).uniform_(1, 1),
    "windows with gaps": lambda x: x.unfold(0, 1, 2).add_(1),
    "one window of several": lambda x: x.unfold(0, 2, 1)[1].erf_(),
    "windows that overlap": lambda x: x.unfold(0, 2, 1).fill_(1.0),
    "a copy into windows": lambda x: x.unfold(1, 1, 1).copy_(torch.ones(3, 2, 1)),
    "nothing": lambda x: x[:0, :1].expand(0, 5).add_(1),
    "nothing, twice": lambda x: x[:0].expand(4, 0, 2).__setitem__(slice(None), 1.0),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_through_expand_is_exact(name: str) -> None:
    def run(x: Tensor) -> list[Tensor]:
        base = x.clone()
        seen = base.expand(2, 3, 2)
        WRITES[name](base)
        return [base, seen]

    numbers = torch.tensor([[1e20, 2.0], [float("inf"), -0.0], [float("nan"), 4.0]])
    assert_lockstep(run, numbers)


def test_bools() -> None:
    def run(device: Any) -> Tensor:
        x = torch.tensor([[True, False]], device=device)
        same = x.expand(1, 2)
        same.add_(same)
        none = x[:0].expand(3, 0, 2)
        none.copy_(none.clone())
        x[:0].broadcast_to((0, *x[:0].shape)).detach().mul_(False)
        return x

    assert_same(run(XLA), run("cpu"))


def test_gradients_of_a_write_through_expand() -> None:
    def run(device: Any) -> list[Tensor | None]:
        x = torch.tensor([[1.0], [2.0], [3.0]], device=device, requires_grad=True)
        middle = x * 2
        wide = middle.expand(3, 4)
        wide[:2, 1].mul_(torch.tensor([5.0, 7.0], device=device))
        wide[2, :1].sigmoid_()
        (middle.sum() + wide.pow(2).sum()).backward()
        return [x.grad, middle.detach(), wide.detach()]

    assert_same(run(XLA), run("cpu"))


def test_a_list_that_holds_a_tensor_twice_is_updated_twice() -> None:
    def run(device: Any) -> list[Tensor]:
        x = torch.ones(3, device=device, requires_grad=True)
        y, z = x * 2, torch.ones(3, device=device)
        torch._foreach_add_([y, y, y[:1]], 1)
        torch._foreach_mul_([z, z[1:]], [2.0, 3.0])
        torch._foreach_add_([z, z], [z, y.detach()], alpha=2)
        y.sum().backward()
        return [y.detach(), z, x.grad]  # type: ignore[list-item]

    assert_same(run(XLA), run("cpu"))


@pytest.mark.parametrize("hide", [Tensor.detach, lambda x: x.data])
@pytest.mark.parametrize(
    "view", [lambda x: x.unfold(0, 1, 2), lambda x: x.expand(1, 3)], ids=["unfold", "expand"]
)
def test_a_write_that_would_miss_its_memory_is_refused(
    view: Callable[[Tensor], Tensor], hide: Callable[[Tensor], Tensor]
) -> None:
    """Functionalization would write 0 between windows, and 1e20 + (1 - 1e20)."""
    x = torch.tensor([1e20, 2, 3], device="xla")
    with pytest.raises(RuntimeError, match=r"aten::fill_: a tensor that expand\(\), unfold\(\) or"):
        hide(view(x)).fill_(1)
    with torch.no_grad():
        view(x).fill_(1)
    expected = torch.tensor([1e20, 2, 3])
    view(expected).fill_(1)
    assert x.tolist() == expected.tolist()
    hide(x).unfold(0, 1, 2).add_(1)
    hide(expected).unfold(0, 1, 2).add_(1)
    assert x.tolist() == expected.tolist()


# What as_strided() gives twice is written to through a view of it.
PARTS: dict[str, Callable[[Tensor], object]] = {
    "rows of one row": lambda x: x.as_strided((2, 2), (0, 1))[0].zero_(),
    "a number of one": lambda x: x.as_strided((1, 2), (0, 0)).diagonal().zero_(),
    "one window of several": lambda x: x.as_strided((3, 2), (1, 1))[1].mul_(3),
    "columns of windows": lambda x: x.as_strided((3, 2), (1, 1))[:, 0].add_(1),
    "setitem": lambda x: x.as_strided((3, 2), (2, 1), 1)[1].__setitem__(0, 5.0),
    "no windows overlap": lambda x: x.as_strided((2, 2), (3, 1)).t()[0].erf_(),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_write_to_a_part_of_as_strided(name: str) -> None:
    theirs = torch.arange(1.0, 9)
    ours = theirs.to(XLA)
    for x in (theirs, ours):
        PARTS[name](x)
    assert_same(ours, theirs)


def test_a_write_to_a_part_of_data_that_is_there_twice_is_refused() -> None:
    x = torch.ones(1, 3, device="xla:0")
    part = x.as_strided((1, 3), (1, 0), 0).data[..., 1:]
    with pytest.raises(RuntimeError, match=r"through detach\(\) or .data"):
        part.fill_(3)
    assert x.tolist() == [[1, 1, 1]]
