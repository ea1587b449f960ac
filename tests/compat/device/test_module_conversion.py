# pyright: reportOptionalMemberAccess=false
"""Converting a module keeps its Parameter objects, their ties, optimizers and attributes."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from xla_dynamo.compat.device import torch_patches

XLA = torch.device("xla:0")


class Tied(nn.Module):
    """Six parameters, of which two are one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(7, 4)
        self.hidden = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.hidden(self.embedding(x))))


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> list[float]:
    x = torch.arange(6, device=device)
    found = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_made_before_trains_the_model(optimizer: Callable[..., torch.optim.Optimizer]):
    found = []
    for device in (torch.device("cpu"), XLA):
        model = Tied()
        made = optimizer(model.parameters(), lr=0.1)
        found.append(losses(model.to(device), made, device))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    assert found[1][3] < found[1][0]


@pytest.mark.parametrize(
    "convert",
    [
        lambda m: m.to(XLA),
        lambda m: m.to(XLA).bfloat16().float(),
        lambda m: m.to(XLA, torch.float64),
        lambda m: m.to(XLA).cpu(),
        lambda m: m.to_empty(device=XLA),
        lambda m: nn.Sequential(m).to(XLA),
    ],
    ids=["to", "dtypes", "to a dtype", "there and back", "to_empty", "within"],
)
def test_objects_ties_and_attributes_stay(convert: Callable[[nn.Module], nn.Module]) -> None:
    model = Tied()
    before = dict(model.named_parameters())
    model.hidden.weight.is_sharded = True  # as libraries mark their parameters
    references = [weakref.ref(param) for param in model.parameters()]
    convert(model)
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert [reference() for reference in references] == list(after.values())
    assert model.head.weight is model.embedding.weight
    assert model.hidden.weight.is_sharded
    assert all(type(p) is nn.Parameter and p.requires_grad and p.is_leaf for p in after.values())


def test_gradients_and_buffers_go_along() -> None:
    model = Tied()
    model(torch.arange(6)).sum().backward()
    gradient, mean = model.hidden.weight.grad.clone(), model.norm.running_mean.clone()
    model.to(XLA)
    assert model.hidden.weight.grad.device == model.norm.running_mean.device == XLA
    torch.testing.assert_close(model.hidden.weight.grad.cpu(), gradient)
    torch.testing.assert_close(model.norm.running_mean.cpu(), mean)
    model.to(XLA)  # nothing to do
    torch.testing.assert_close(model.hidden.weight.grad.cpu(), gradient)


def test_copies_and_loaded_states_keep_ties() -> None:
    model = Tied().to(XLA)
    copied = copy.deepcopy(model)
    assert copied.head.weight is copied.embedding.weight is not model.head.weight
    before = list(model.parameters())
    model.load_state_dict(Tied().state_dict())
    assert all(one is other for one, other in zip(model.parameters(), before, strict=True))
    model.load_state_dict({k: v + 1 for k, v in copied.state_dict().items()}, assign=True)
    torch.testing.assert_close(model.hidden.bias.cpu(), copied.hidden.bias.cpu() + 1)


@pytest.mark.parametrize("convert", [lambda m: m.to(XLA), lambda m: m.to(XLA).cpu()])
def test_a_graph_of_before_does_not_run_backward(convert: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Linear(2, 2)
    loss = model.weight.exp().sum()
    convert(model)
    with pytest.raises(RuntimeError, match="before its module was moved"):
        loss.backward()
    model.weight.exp().sum().backward()
    assert model.weight.grad is not None


def test_modules_of_the_cpu_are_pytorchs_affair() -> None:
    model = nn.Linear(2, 2)
    weight, data = model.weight, model.weight.data
    model.double()
    assert model.weight is weight
    assert weight.dtype == torch.float64
    assert data.dtype == torch.float32
    assert nn.Module._apply.__module__ == "xla_dynamo.compat.device.module_conversion"
    torch_patches.uninstall()
    try:
        assert nn.Module._apply.__module__ == "torch.nn.modules.module"
    finally:
        torch_patches.install()
