"""Optimizers with fused=True on xla, with and without loss scaling."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch_xla.debug.metrics as met
from torch import Tensor

XLA = torch.device("xla:0")
SETTINGS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1, "maximize": True},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01},
}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


def train(name: str, device: str, overflows: tuple[int, ...], **form: Any) -> list[Tensor]:
    """The parameters after four steps, of which some have an infinite gradient."""
    net = model().to(device)
    optimizer = getattr(torch.optim, name)(net.parameters(), **SETTINGS[name], **form)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, enabled=bool(overflows))
    for step in range(4):
        x = torch.randn(3, 4)
        if step in overflows:
            x[0, 0] = float("inf")
        optimizer.zero_grad()
        scaler.scale(net(x.to(device)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    return [p.detach().cpu() for p in net.parameters()]


@pytest.mark.parametrize("name", SETTINGS)
def test_it_trains_as_the_plain_form_does(name: str) -> None:
    expected = train(name, "cpu", (0, 2), foreach=False)
    torch.testing.assert_close(train(name, "xla", (0, 2), fused=True), expected)


def test_without_a_scaler() -> None:
    expected = train("Adagrad", "cpu", (), foreach=False)
    torch.testing.assert_close(train("Adagrad", "xla", (), fused=True), expected)


def scaled_step(name: str, found_inf: float) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """A parameter, its gradient and its state after a second step from a scaled gradient of 4."""
    weight = torch.ones(2, device=XLA, requires_grad=True)
    optimizer: Any = getattr(torch.optim, name)([weight], **SETTINGS[name], fused=True)
    weight.grad = torch.ones(2, device=XLA)
    optimizer.step()
    weight.grad = torch.full((2,), 4.0, device=XLA)
    optimizer.grad_scale = torch.tensor(4.0, device=XLA)
    optimizer.found_inf = torch.tensor([found_inf], device=XLA)
    optimizer.step()
    return weight, weight.grad, optimizer.state[weight]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_skipped_step_changes_no_state_and_unscales_gradients(name: str) -> None:
    met.clear_all()
    weight, gradient, state = scaled_step(name, 1.0)
    assert met.metric_data("ExecuteTime") is None  # nothing has been read
    once = torch.ones(2, requires_grad=True)
    plain = getattr(torch.optim, name)([once], **SETTINGS[name])
    once.grad = torch.ones(2)
    plain.step()
    torch.testing.assert_close(weight.cpu(), once)
    assert gradient.tolist() == [1.0, 1.0]
    for key, value in plain.state[once].items():
        torch.testing.assert_close(state[key].cpu(), torch.as_tensor(value))
    taken, _, _ = scaled_step(name, 0.0)
    plain.step()
    torch.testing.assert_close(taken.cpu(), once)


def test_a_fused_step_compiles() -> None:
    net = model()
    twin = copy.deepcopy(net).to(XLA)
    for module, form in ((net, {}), (twin, {"fused": True})):
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, **form)
        step = torch.compile(optimizer.step, backend="xla") if form else optimizer.step
        for _ in range(2):
            optimizer.zero_grad()
            device = next(module.parameters()).device
            module(torch.ones(3, 4, device=device)).square().sum().backward()
            step()
    torch.testing.assert_close(
        [p.cpu() for p in twin.parameters()], list(net.parameters()), rtol=1e-4, atol=1e-5
    )


def test_optimizers_compile_in_torchscript_as_some_libraries_do_on_import() -> None:
    from torch.distributed.optim.functional_adam import _FunctionalAdam

    parameter = torch.ones(2)
    _FunctionalAdam([parameter], 0.1, (0.9, 0.999), 1e-8, 0.0).step([torch.ones(2)])
    torch.testing.assert_close(parameter, torch.full((2,), 0.9))
