"""In-place ops and strides on the lazy device: kept as in eager, or refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def _zeros(*shape: int, like: Tensor) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64, device=like.device)


# Whose functional forms give row-major results.
WRITES: dict[str, Callable[[Tensor], Tensor]] = {
    "baddbmm_": lambda t: t.baddbmm_(t.new_ones(3, 5, 4), t.new_ones(3, 4, 2)),
    "bernoulli_": lambda t: t.bernoulli_(1.0),
    "cumprod_": lambda t: t.cumprod_(1),
    "cumsum_": lambda t: t.cumsum_(0),
    "index_add_": lambda t: t.index_add_(0, _zeros(1, like=t), t[:1].clone()),
    "index_copy_": lambda t: t.index_copy_(0, _zeros(1, like=t), t[1:2].clone()),
    "index_reduce_": lambda t: t.index_reduce_(0, _zeros(1, like=t), t[1:2].clone(), "amax"),
    "masked_fill_": lambda t: t.masked_fill_(t > 3, 1.0),
    "masked_scatter_": lambda t: t.masked_scatter_(t > 3, t.clone()),
    "mvlgamma_": lambda t: t.mvlgamma_(1),
    "renorm_": lambda t: t.renorm_(2, 0, 1.0),
    "scatter_": lambda t: t.scatter_(0, _zeros(1, 5, 2, like=t), 1.0),
    "scatter_add_": lambda t: t.scatter_add_(0, _zeros(1, 5, 2, like=t), t[1:2].clone()),
    "triu_": lambda t: t.triu_(1),
    "xlogy_": lambda t: t.xlogy_(t.new_ones(3, 5, 2)),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("differentiated", [False, True])
def test_writes_keep_strides(name: str, differentiated: bool) -> None:
    results = []
    for device in ("cpu", "xla:0"):
        x = (
            torch.arange(30.0)
            .to(device)
            .reshape(2, 5, 3)
            .transpose(0, 2)
            .requires_grad_(differentiated)
        )
        t = x + 1  # dense, with the strides of x
        part = t[1:]
        WRITES[name](t)
        results.append((t.stride(), t.detach().cpu(), part.detach().cpu()))
    actual, expected = results[1], results[0]
    assert actual[0] == expected[0] == (1, 3, 15)
    torch.testing.assert_close(actual[1:], expected[1:])


def test_resize_to_the_same_size_keeps_strides() -> None:
    t = torch.ones(2, 3, device="xla:0").t().clone(memory_format=torch.preserve_format)
    assert t.resize_(3, 2).stride() == (1, 3)


RENAMES: dict[str, Callable[[Tensor], Tensor]] = {
    "as_strided_": lambda t: t.as_strided_((4, 1, 3), (1, 1, 4)),
    "squeeze_": lambda t: t.squeeze_(1),
    "squeeze_ all": lambda t: t.squeeze_(),
    "squeeze_ two": lambda t: t.squeeze_((0, 1)),
    "swapaxes_": lambda t: t.swapaxes_(0, 2),
    "transpose_": lambda t: t.transpose_(0, 2),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
}


@pytest.mark.parametrize("name", RENAMES)
def test_dimensions_do_not_change_under_views_with_gradients(name: str) -> None:
    """PyTorch would take the gradient of `part` for one of other elements."""
    x = torch.arange(12.0, device="xla:0").reshape(3, 1, 4).requires_grad_()
    t = x * 2
    part = t[1]
    with pytest.raises(RuntimeError, match="there are views of this tensor on an xla device"):
        RENAMES[name](t)
    (gradient,) = torch.autograd.grad(part.sum(), x)
    assert gradient.flatten().tolist() == [0.0] * 4 + [2.0] * 4 + [0.0] * 4


@pytest.mark.parametrize("name", RENAMES)
def test_dimensions_change_in_place(name: str) -> None:
    """Of a view, without views, of what is detached, and without gradients."""
    for device in ("cpu", "xla:0"):
        x = torch.arange(12.0).to(device).reshape(3, 1, 4).requires_grad_()
        t = x * 2
        detached, expected = t.detach(), RENAMES[name](torch.arange(12.0).reshape(3, 1, 4) * 2)
        RENAMES[name](t)
        assert torch.equal(t.cpu(), expected)
        assert torch.equal(detached.cpu(), x.detach().cpu() * 2)
        (gradient,) = torch.autograd.grad((t * t.detach()).sum(), x)
        assert torch.equal(gradient, x * 4)
        with torch.no_grad():
            t = x * 2
            part = t[1]
            RENAMES[name](t)
            assert torch.equal(t.cpu(), expected)
            assert part.flatten().tolist() == [8.0, 10.0, 12.0, 14.0]
        base = x * 2
        if name != "as_strided_":  # a part does not know where it begins
            view, part = base[:], base[1]
            RENAMES[name](view)
            (gradient,) = torch.autograd.grad(view.sum() + part.sum(), x)
            assert gradient.flatten().tolist() == [2.0] * 4 + [4.0] * 4 + [2.0] * 4


class Watched(TorchDispatchMode):
    """Is told of every op."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("watch", [contextlib.nullcontext, Watched])
def test_a_write_to_a_detached_tensor_reaches_the_original_and_its_views(watch) -> None:
    x = torch.arange(4.0, device="xla")
    first, second, part = x.detach(), x.detach().detach(), x[1:3]
    other = torch.ones(1, device="xla")
    with watch():
        first.add_(1)
        second.mul_(2)
        torch._foreach_add_([first, other], 1.0)  # type: ignore[attr-defined]
    kept = first.clone()
    part.zero_()
    assert first.tolist() == second.tolist() == x.tolist() == [3.0, 0.0, 0.0, 9.0]
    assert kept.tolist() == [3.0, 5.0, 7.0, 9.0]


WITHIN_A_MODE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda old, new: (old.add_(new), new.add_(old)),
    "lists": lambda old, new: torch._foreach_add_([old, new], 1.0),  # type: ignore[attr-defined]
    "lists of both": lambda old, new: torch._foreach_mul_([new, old], [old + 1, new + 1]),  # type: ignore[attr-defined]
    "views": lambda old, new: (new[1:].add_(old[1:]), old[:1].copy_(new[:1])),
    "out": lambda old, new: torch.add(old, new, out=new),
    "fill": lambda old, new: (new.zero_(), old.copy_(new + 5)),
}


@pytest.mark.parametrize("name", WITHIN_A_MODE)
def test_what_is_made_within_a_mode_is_written_to_as_elsewhere(name: str) -> None:
    """PyTorch's kernels end the process where one tensor of a list is functional and one is not."""
    results = []
    for device in ("cpu", "xla"):
        x = torch.arange(3.0, device=device)
        with Watched():
            old, new = x.detach(), torch.full((3,), 2.0, device=device)
            WITHIN_A_MODE[name](old, new)
        results.append([each.tolist() for each in (x, old, new)])
    assert results[0] == results[1]
