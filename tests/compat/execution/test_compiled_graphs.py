"""Graphs of torch.compile take over the memory of what they change, unless somebody else has it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn

import xla_dynamo
from tests.like_eager.lazy import XLA, assert_same, to_device
from xla_dynamo.backend.runtime import transfers
from xla_dynamo.compat.execution import compiled_graphs
from xla_dynamo.compat.values.values import value_of

X = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))


def pointer(x: Tensor) -> int:
    return transfers.pointer(value_of(x).array)


@pytest.fixture
def aliases(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many results of each graph that is launched take over memory."""
    counts: list[int] = []
    monkeypatch.setattr(compiled_graphs, "on_launch", [lambda run: counts.append(run.aliases)])
    return counts


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of arrays that were copied before a launch."""
    shapes: list[tuple[int, ...]] = []
    copied = transfers.copied
    monkeypatch.setattr(transfers, "copied", lambda a: shapes.append(a.shape) or copied(a))
    return shapes


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 2)
    )


def double(x: Tensor) -> None:
    x.mul_(2)


def test_a_training_step_has_its_state_once(aliases, copies):
    theirs = network()
    ours = to_device(theirs)
    for model, backend in ((theirs, "eager"), (ours, "xla")):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        forward = torch.compile(model, backend=backend)
        update = torch.compile(optimizer.step, backend=backend)
        x = X.to(model.get_parameter("0.weight").device)
        for _ in range(3):
            optimizer.zero_grad()
            forward(x).square().mean().backward()
            xm.mark_step()
            aliases.clear()
            copies.clear()
            update()
            if model is ours:
                assert aliases == [4 * 5]  # parameters, two moments, steps
                weight = model.get_parameter("0.weight")
                state = optimizer.state[weight]
                tensors = [weight, state["exp_avg"], state["exp_avg_sq"]]
                assert (16, 6) not in copies
                assert len({pointer(x) for x in tensors}) == 3
    assert_same(ours.state_dict(), theirs.state_dict(), rtol=1e-4, atol=1e-5)


def test_results_are_in_the_memory_of_arguments(copies):
    x = torch.ones(64, device=XLA)
    xm.mark_step()
    update = torch.compile(double, backend="xla")
    before = pointer(x)
    for _ in range(3):
        update(x)
    assert pointer(x) == before
    assert x.cpu().tolist() == [8.0] * 64
    assert not copies


def holders() -> dict[str, object]:
    def clone(x: Tensor) -> Tensor:
        kept = torch.empty_like(x)
        kept.copy_(x)
        return kept

    return {
        "a copy": clone,
        "a clone": torch.clone,
        "a pending op": lambda x: x + 1,
        "a deep copy": copy.deepcopy,
        "a conversion": lambda x: x.to(torch.float32, copy=True),
        "a module": lambda x: nn.Parameter(x.clone()),
    }


@pytest.mark.parametrize("name", holders())
def test_what_has_the_old_value_keeps_it(name):
    hold = holders()[name]
    x = torch.arange(4.0, device=XLA)
    update = torch.compile(double, backend="xla")
    update(x)
    kept = hold(x)  # type: ignore[operator]
    expected = hold(x.cpu())  # type: ignore[operator]
    update(x)
    again = hold(x)  # type: ignore[operator]
    update(x)
    assert torch.equal(kept.cpu(), expected)
    assert torch.equal(again.cpu(), hold(torch.arange(4.0) * 4))  # type: ignore[operator]
    assert x.cpu().tolist() == [0, 8, 16, 24]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.detach(),
        lambda x: x.view(-1),
        lambda x: x[1:],
        lambda x: x.t(),
        lambda x: x.data,
    ],
)
def test_views_of_what_is_changed_change(view):
    ours, theirs = torch.arange(6.0, device=XLA).view(2, 3), torch.arange(6.0).view(2, 3)
    update = torch.compile(double, backend="xla")
    for x, change in ((ours, update), (theirs, double)):
        change(x)
        seen = view(x)
        change(x)
        change(seen)
        change(x)
    assert torch.equal(ours.cpu(), theirs)


def test_two_arguments_of_one_value():
    x = torch.arange(4.0, device=XLA)
    y = torch.empty_like(x)
    y.copy_(x)

    @torch.compile(backend="xla")
    def update(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(3)
        return x + y

    assert update(x, y).cpu().tolist() == [0, 4, 8, 12]
    assert y.cpu().tolist() == [0, 1, 2, 3]
    assert x.cpu().tolist() == [0, 3, 6, 9]


def test_what_is_saved_for_backward_is_not_taken():
    def step(x: Tensor, w: Tensor, counts: Tensor) -> Tensor:
        y = x * counts * w
        counts.add_(1)
        return y.exp()

    found = []
    for on, run in (("cpu", step), (XLA, torch.compile(step, backend="xla"))):
        w = torch.ones(4, device=on, requires_grad=True)
        counts = torch.ones(4, device=on)
        first = run(torch.ones(4, device=on), w, counts)
        second = run(torch.ones(4, device=on), w, counts)
        (first + second).sum().backward()
        assert w.grad is not None
        found.append((w.grad.cpu(), counts.cpu()))
    torch.testing.assert_close(*found)


def test_a_parameter_that_is_changed_before_backward_is_an_error():
    w = torch.ones(4, device=XLA, requires_grad=True)
    loss = torch.compile(lambda w: w.square().sum(), backend="xla")(w)
    with torch.no_grad():
        torch.compile(double, backend="xla")(w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_an_optimizer_counts_is_beside_its_parameters():
    """From the CPU and back it would be a copy for each parameter at each step."""
    model = to_device(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step = xla_dynamo.training_step(optimizer)(lambda x: model(x).square().mean())
    x = X.to(model.get_parameter("0.weight").device)
    for _ in range(2):
        step(x)
    counts = [own["step"] for own in optimizer.state.values()]
    assert {(count.device, count.item()) for count in counts} == {(x.device, 2.0)}
    model(x).square().mean().backward()
    optimizer.step()  # in eager PyTorch, too
    assert [count.item() for count in counts] == [3.0] * len(counts)
    other = torch.optim.AdamW(network().parameters())
    other.load_state_dict(optimizer.state_dict())
    assert {own["step"].item() for own in other.state.values()} == {3.0}


def test_autograd_sees_an_update_where_the_argument_is() -> None:
    weight = torch.ones(3, device=XLA, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    step = xla_dynamo.training_step(optimizer)(lambda: (weight * weight).sum())
    saved = (weight * weight).sum()
    alias = weight.detach()
    step()
    assert weight.tolist() == alias.tolist() == [0.0] * 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


def test_an_update_that_is_another_result_is_one_of_its_own() -> None:
    @torch.compile(backend="xla")
    def move(state: Tensor, x: Tensor) -> Tensor:
        new = state + x
        state.copy_(new)
        return new

    state = torch.zeros(4, device=XLA)
    first = move(state, torch.ones(4, device=XLA))
    second = move(state, torch.ones(4, device=XLA))
    assert [each.tolist() for each in (state, first, second)] == [[2.0] * 4, [1.0] * 4, [2.0] * 4]
    state.zero_()
    assert second.tolist() == [2.0] * 4


def test_a_copy_of_a_tensor_into_itself_is_a_write() -> None:
    x = torch.ones(2, device=XLA)
    version = x._version
    x.copy_(x.detach())
    assert x._version > version
    leaf = torch.ones(2, device=XLA, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.copy_(leaf)
