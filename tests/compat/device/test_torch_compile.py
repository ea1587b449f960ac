"""torch.compile on tensors of the device: arrays in, arrays out, mixed with lazy code."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn
from torch.nn import functional as F

from tests.backend.separate_memory import separate_memory as separate_memory
from tests.like_eager.lazy import XLA, assert_lockstep, assert_same, to_device
from xla_dynamo.backend.runtime import transfers
from xla_dynamo.compat.recording import metrics
from xla_dynamo.compat.values.values import value_of

BACKENDS = ["xla", "openxla"]
X = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)
    ).double()


def pointer(x: Tensor) -> int:
    xm.mark_step()
    return transfers.pointer(value_of(x).array)


def copied() -> int:
    found = [metrics.metrics.get(name) for name in ("InboundData", "OutboundData")]
    return sum(metric.total for metric in found if metric is not None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference(backend: str) -> None:
    module = network().eval()
    ours = to_device(module)
    compiled = torch.compile(ours, backend=backend)
    with torch.no_grad():
        for rows in (3, 3, 2):
            assert_same(compiled(X[:rows].to(XLA)), module(X[:rows]), **EXACT)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training(backend: str) -> None:
    def train(module: nn.Module, compiled: nn.Module, x: Tensor) -> list[Tensor]:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = compiled(x).square().mean()
            loss.backward()
            optimizer.step()
            if x.is_xla:
                xm.mark_step()
            losses.append(loss.detach())
        return losses

    theirs, ours = network(), to_device(network())
    expected = train(theirs, theirs, X)
    actual = train(ours, torch.compile(ours, backend=backend), X.to(XLA))
    assert_same(actual, expected, **EXACT)
    assert_same(dict(ours.state_dict()), dict(theirs.state_dict()), **EXACT)


def test_whole_step_and_optimizer_compiled() -> None:
    def train(module: nn.Module, x: Tensor, compile: bool) -> list[Tensor]:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, foreach=False)
        update = torch.compile(optimizer.step, backend="xla") if compile else optimizer.step
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            update()
            losses.append(loss.detach())
        return losses

    theirs, ours = network(), to_device(network())
    assert_same(train(ours, X.to(XLA), True), train(theirs, X, False), **EXACT)


def test_frozen_batch_norm_in_training() -> None:
    def chain(module: nn.Module, x: Tensor) -> Tensor:
        loss = torch.compile(module.eval(), backend="xla")(x).square().sum()
        loss.backward()
        return loss.detach()

    module = network()
    module[1].running_var.fill_(0.5)
    assert_lockstep(chain, module, X.clone().requires_grad_(), **EXACT)


def test_lazy_code_around_and_between() -> None:
    @torch.compile(backend="xla")
    def middle(x: Tensor) -> Tensor:
        return torch.tanh(x) @ x.t()

    def chain(x: Tensor) -> list[Tensor]:
        y = x * 2
        y[0] += 1
        z = middle(y) + y.sum()
        z.mul_(2)
        w = middle(z)
        w.sum().backward()
        return [z.detach(), w.detach()]

    assert_lockstep(chain, X.clone().requires_grad_(), **EXACT)


def test_inputs_are_changed_in_place_and_results_are_views() -> None:
    @torch.compile(backend="xla")
    def change(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a.add_(b)
        return a.view(-1)[1:], a * 2

    def chain(a: Tensor) -> list[Tensor]:
        whole, view = a * 1, a[1] * 1
        first, second = change(whole, torch.ones_like(whole))
        first.mul_(2)
        change(view, view)
        return [whole, first, second, view]

    assert_lockstep(chain, X, **EXACT)


@pytest.mark.parametrize("backend", BACKENDS)
def test_waiting_for_the_device_waits_for_graphs(backend: str) -> None:
    x = torch.ones(1200, 1200).to(XLA)
    y = torch.compile(lambda x: x @ x @ x, backend=backend)(x)
    xm.mark_step()  # launches nothing
    xm.wait_device_ops()
    assert value_of(y).array.is_ready()


def test_nothing_is_copied() -> None:
    @torch.compile(backend="xla")
    def work(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, y.view(-1), x + y

    x, y = X.to(XLA), (X * 2).to(XLA)
    work(x, y)
    before = pointer(x), pointer(y)
    count = copied()
    same, flat, _ = work(x, y)
    assert copied() == count
    assert same is x
    assert pointer(same) == before[0]
    assert_same(flat, X.view(-1) * 2)
    assert (pointer(x), pointer(y)) == before


def test_dropout_follows_the_seed() -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="xla")
    x = torch.ones(64, device=XLA)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(compiled(x).tolist())
    assert draws[0] == draws[1] != draws[2]
    assert set(draws[0]) == {0.0, 2.0}


def test_graph_breaks_and_values() -> None:
    @torch.compile(backend="xla")
    def branch(x: Tensor) -> Tensor:
        y = x.sin()
        if y.sum() > 0:
            return y * 2
        return y - 1

    for sign in (1, -1):
        assert_lockstep(branch, X * sign, **EXACT)


def test_moves_inside_the_graph() -> None:
    @torch.compile(backend="xla")
    def move(x: Tensor) -> Tensor:
        return x.to(XLA) * torch.arange(4, device=XLA)

    assert_same(move(X), X * torch.arange(4), **EXACT)


def test_copies_of_a_module_compile_apart() -> None:
    ours = to_device(network().eval())
    twin = copy.deepcopy(ours)
    with torch.no_grad():
        twin[3].bias.add_(1)
        first = torch.compile(ours, backend="xla")(X.to(XLA))
        second = torch.compile(twin, backend="xla")(X.to(XLA))
    assert_same(second, first.cpu() + 1, **EXACT)


def test_a_detached_result_leaves_gradients_to_the_others() -> None:
    def program(x: Tensor) -> list[Tensor]:
        y = x * 2
        return [y[0], y[1].detach(), y.detach(), y.detach()]

    x = torch.ones(2, 3, device="xla:0", requires_grad=True)
    results = torch.compile(program, backend="xla", fullgraph=True)(x)
    assert [y.requires_grad for y in results] == [True, False, False, False]
    assert len(set(map(id, results))) == 4
    (gradient,) = torch.autograd.grad(results[0].sum(), x)
    assert gradient.tolist() == [[2] * 3, [0] * 3]


def test_gradients_are_changed_one_by_one() -> None:
    x, y = (torch.ones(n, device="xla:0", requires_grad=True) for n in ((6,), (2, 3)))
    torch.compile(lambda x, y: (x + y.view(6)) * 2, backend="xla")(x, y).sum().backward()
    x.grad.mul_(2)
    assert x.grad.tolist() == [4] * 6
    assert y.grad.tolist() == [[2] * 3] * 2


@pytest.mark.parametrize("name", ["chunk", "narrow", "expand", "strided"])
def test_views_of_arguments_of_any_size(name: str) -> None:
    views: dict[str, Callable[[Tensor], Tensor]] = {
        "chunk": lambda x: x.chunk(2, 1)[1],
        "narrow": lambda x: x.narrow(1, 1, x.shape[1] - 2),
        "expand": lambda x: x.unsqueeze(0).expand(2, x.shape[0], x.shape[1]),
        "strided": lambda x: x[1:].as_strided((2, x.shape[1] // 2), (1, 2))[1],
    }
    compiled = torch.compile(views[name], backend="xla", fullgraph=True, dynamic=True)
    for n in (6, 8):
        x = torch.arange(8.0 * n, device="xla:0").reshape(8, n)[3:7]
        assert torch.equal(compiled(x), views[name](x))


@pytest.mark.usefixtures("separate_memory")
def test_sizes_of_buckets_are_padded_on_the_device() -> None:
    """Where it has memory of its own, nothing goes through the host from the second call on."""
    module = network().eval()
    ours = to_device(module)
    compiled = torch.compile(ours, backend="xla", options={"bucket": [8]})
    for _ in range(2):
        x = torch.randn(5, 4, dtype=torch.float64)
        given, expected = x.to(XLA).requires_grad_(), x.requires_grad_()
        torch._dynamo.mark_dynamic(given, 0)
        xm.mark_step()
        before = copied()
        result = compiled(given)
        result.sum().backward()
        xm.mark_step()
        moved = copied() - before
        module(expected).sum().backward()
        assert_same(result, module(x), **EXACT)
        assert_same(given.grad, expected.grad, **EXACT)
    assert moved == 0
