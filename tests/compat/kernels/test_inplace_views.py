"""Writes after dimensions were changed in place: right, or refused for their gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo.compat  # noqa: F401  (the xla device)

WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "to it": lambda base, view, x: view.add_(view.detach()),
    "to what it is a view of": lambda base, view, x: base.mul_(2),
    "to another view": lambda base, view, x: base[0].mul_(2),
    "without gradients": lambda base, view, x: base.detach().zero_(),
    "in a list": lambda base, view, x: torch._foreach_mul_([base], 2),
    "by out=": lambda base, view, x: torch.add(x.detach(), 1, out=base.detach()),
    "by index": lambda base, view, x: base.__setitem__(0, 5.0),
    "of dimensions": lambda base, view, x: base.view(3, 1, 4).squeeze_(1),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_after_dimensions_of_a_view_changed(write: str) -> None:
    """PyTorch would give the view the gradient of one with the dimensions that it had."""
    x = torch.arange(12.0, device="xla:0").reshape(3, 1, 4).requires_grad_()
    base = x * 2
    view = base.view(3, 4)
    view.t_()
    with pytest.raises(RuntimeError, match="dimensions were changed in place"):
        WRITES[write](base, view, x)
    weights = torch.arange(12.0, device="xla:0").reshape(4, 3)
    (gradient,) = torch.autograd.grad((view * weights).sum(), x)
    assert torch.equal(gradient.squeeze(1), 2 * weights.t())


def test_what_is_recorded_after_dimensions_of_a_view_changed() -> None:
    """Also where gradients begin with the write; without any, all is written."""
    x = torch.ones(3, 4, device="xla:0").requires_grad_()
    base = torch.arange(12.0, device="xla:0").reshape(3, 4).clone()
    view = base.view(3, 4)
    view.t_()
    with pytest.raises(RuntimeError, match="dimensions were changed in place"):
        base.mul_(x)
    base.mul_(2)
    view.add_(1)
    assert view.tolist() == [[1.0, 9.0, 17.0], [3.0, 11.0, 19.0], [5.0, 13.0, 21.0], [7, 15, 23]]


def test_dimensions_of_results_change_and_are_written_to() -> None:
    """Which PyTorch may have made as views of a tensor that nobody has."""
    for device in ("cpu", "xla:0"):
        x = torch.arange(24.0).to(device).reshape(2, 3, 4).requires_grad_()
        y = torch.nn.functional.linear(x, torch.ones(2, 4, device=device))
        y.unsqueeze_(0).mul_(3)
        y.transpose_(1, 2).relu_()
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert y.shape == (1, 3, 2, 2)
        assert gradient.flatten().tolist() == [6.0] * 24
