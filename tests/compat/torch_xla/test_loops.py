# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportMissingImports=false
"""torch_xla.experimental.gradient_accumulation and scan_layers, as torch_xla 2.9 has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xla_dynamo.compat  # noqa: F401

XLA = torch.device("xla:0")


def gradient_accumulation(*arguments: Any) -> Any:
    from torch_xla.experimental.gradient_accumulation import gradient_accumulation

    return gradient_accumulation(*arguments)


def model_of_ones() -> nn.Module:
    model = nn.Linear(3, 1, bias=False)
    nn.init.ones_(model.weight)
    return model.to(XLA)


def test_losses_and_gradients_are_means() -> None:
    model = model_of_ones()
    loss = gradient_accumulation(lambda x: model(x).sum(), (torch.ones(4, 3, device=XLA),), model)
    assert loss.item() == 3.0
    assert model.weight.grad.tolist() == [[1.0, 1.0, 1.0]]
    # What was there is added to.
    gradient_accumulation(lambda x: model(x).sum(), (torch.ones(4, 3, device=XLA),), model)
    assert model.weight.grad.tolist() == [[2.0, 2.0, 2.0]]


def test_what_is_carried_goes_from_step_to_step() -> None:
    model = model_of_ones()

    def step(x: Tensor, y: Tensor, count: Tensor, pair: Tensor) -> tuple[Tensor, ...]:
        return (model(x) - y).sum(), count + 10, pair.flip(0)

    x, y = torch.ones(5, 2, 3, device=XLA), torch.zeros(5, 2, 1, device=XLA)
    carried = torch.tensor(10.0, device=XLA), torch.tensor([1, 2], device=XLA)
    loss, count, pair = gradient_accumulation(step, (x, y), model, *carried)
    assert (loss.item(), count.item(), pair.tolist()) == (6.0, 60.0, [2, 1])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((), "cannot be empty"),
        ((torch.ones(2, 3), [1, 2]), "Element 1 of iterable_tensors is not a tensor"),
        ((torch.ones(0, 3),), "Element 0 of iterable_tensors is empty"),
        ((torch.ones(2, 3), torch.ones(3, 3)), "Element 1 .* inconsistent first dimension"),
    ],
)
def test_bad_inputs_are_named(tensors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gradient_accumulation(lambda *x: x[0].sum(), tensors, model_of_ones())


def test_a_carried_tensor_must_not_be_changed_in_place() -> None:
    model = model_of_ones()

    def step(x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        count += 1
        return model(x).sum(), count

    carried = torch.tensor(0.0, device=XLA)
    with pytest.raises(AssertionError, match="changes a carried tensor in place"):
        gradient_accumulation(step, (torch.ones(4, 3, device=XLA),), model, carried)


def scan_layers(*arguments: Any) -> Any:
    from torch_xla.experimental.scan_layers import scan_layers

    return scan_layers(*arguments)


class Both(nn.Module):
    """A layer of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x).sin(), self.linear(y) + x


def test_layers_of_tuples() -> None:
    layers = [Both() for _ in range(3)]
    expected = x, y = torch.randn(3), torch.randn(3)
    for layer in layers:
        expected = layer(*expected)
    moved = (layer.to(XLA) for layer in layers)
    got = scan_layers(moved, (x.to(XLA), y.to(XLA)))
    assert isinstance(got, tuple)
    torch.testing.assert_close([t.cpu() for t in got], list(expected))
    assert scan_layers([], x) is x


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (lambda: nn.Sequential(nn.Linear(3, 3)), "Layer 1 has mismatched keys"),
        (lambda: nn.Linear(3, 4), "Shape mismatch for '(weight|bias)' in layer 1"),
        (lambda: nn.Linear(3, 3, bias=False), r"mismatched keys: layer 0 has \['bias'\]"),
    ],
)
def test_layers_that_differ_are_refused(second: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        scan_layers([nn.Linear(3, 3), second()], torch.ones(3))
