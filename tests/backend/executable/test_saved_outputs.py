"""What forward saves stays on a device that has memory of its own: no byte of it is copied."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import xla_dynamo
from tests.backend.separate_memory import separate_memory as separate_memory
from xla_dynamo.backend.runtime import on_device

pytestmark = pytest.mark.usefixtures("separate_memory")
X = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
OUT = 32 * 4 * 4  # bytes of the result, and of its gradient


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)
    )


def parameter_bytes(model: nn.Module) -> int:
    return sum(p.nbytes for p in model.parameters())


def gradients(model: nn.Module, loss: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    model.zero_grad()
    loss().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def check(model: nn.Module, run: Any, expected: Any = None) -> None:
    """`run` gives the gradients of eager."""
    wanted = gradients(model, lambda: (expected or model)(X).square().mean())
    found = gradients(model, lambda: run(X).square().mean())
    assert found
    torch.testing.assert_close(found, wanted)


def test_a_step_copies_inputs_results_and_gradients_alone():
    model = network()
    compiled = torch.compile(model, backend="xla")
    check(model, compiled)
    xla_dynamo.reset_metrics()
    check(model, compiled)
    moved = xla_dynamo.transfers()
    # The parameters are there, and so is `x` for the weights' gradients.
    assert (moved.to_device, moved.bytes_to_device) == (2, X.nbytes + OUT)
    assert moved.bytes_to_host == OUT + parameter_bytes(model)


def test_gradients_accumulate_over_graphs_that_are_alive_together():
    model = network()
    compiled = torch.compile(model, backend="xla")
    check(model, lambda x: compiled(x) + compiled(2 * x), lambda x: model(x) + model(2 * x))


def test_backward_twice():
    model = network()
    loss = torch.compile(model, backend="xla")(X).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    found = [p.grad for p in model.parameters()]
    wanted = gradients(model, lambda: model(X).square().mean())
    torch.testing.assert_close(found, [2 * each for each in wanted])


def under(hooks: Callable[[], Any], run: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def hooked(x: torch.Tensor) -> torch.Tensor:
        with hooks():
            return run(x)

    return hooked


def as_numpy(x: torch.Tensor) -> Any:
    return x.detach().numpy().copy()


def as_bytes(x: torch.Tensor) -> bytes:
    return pickle.dumps(x.detach())


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (as_numpy, torch.from_numpy),
        (as_bytes, pickle.loads),
        (lambda x: x * 2, lambda x: x / 2),
        (lambda x: x.detach().tolist(), torch.tensor),
        (lambda x: x.detach(), lambda x: x),
        (lambda x: x.clone().zero_().add_(x), lambda x: x),
    ],
)
def test_hooks_read_values(pack, unpack):
    model = network()
    compiled = torch.compile(model, backend="xla")
    check(model, compiled)
    xla_dynamo.reset_metrics()

    check(model, under(lambda: saved_tensors_hooks(pack, unpack), compiled))


def test_saving_on_the_cpu():
    model = network()
    compiled = torch.compile(model, backend="xla")
    check(model, under(save_on_cpu, compiled))


def test_checkpointing_downloads_nothing_of_what_it_drops():
    model = network()
    compiled = torch.compile(model, backend="xla")

    def run(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(compiled, x, use_reentrant=False)

    check(model, run)
    xla_dynamo.reset_metrics()
    check(model, run)
    assert xla_dynamo.transfers().bytes_to_host == 2 * OUT + parameter_bytes(model)


def test_memory_is_freed_with_the_graph(monkeypatch):
    arrays: list[Any] = []
    keep = on_device.keep

    def watched(array: Any, *rest: Any) -> Any:
        arrays.append(weakref.ref(array))
        return keep(array, *rest)

    monkeypatch.setattr(on_device, "keep", watched)
    compiled = torch.compile(lambda x, w: (x @ w).tanh().exp(), backend="xla")
    weight = torch.randn(16, 16, requires_grad=True)
    result = compiled(X, weight)
    assert arrays
    assert all(array() is not None for array in arrays)
    del result
    gc.collect()
    assert not any(array() is not None for array in arrays)
    compiled(X, weight).sum().backward()
    gc.collect()
    assert not any(array() is not None for array in arrays)


def test_an_op_of_the_backward_that_runs_on_the_cpu_downloads_what_it_reads():
    @torch.library.custom_op("saved_outputs::spoiled", mutates_args=())
    def spoiled(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    spoiled.register_fake(lambda x: torch.empty_like(x))
    spoiled.register_autograd(
        lambda ctx, grad: grad * spoiled(ctx.saved_tensors[0] + 1),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = X.clone().requires_grad_()
    with pytest.warns(xla_dynamo.FallbackWarning):
        torch.compile(lambda x: spoiled(x.exp()) * 2, backend="xla")(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 2 * (X.exp() + 1).sin() * X.exp())


def test_a_gradient_that_is_a_saved_tensor_is_an_ordinary_one():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            e = x.exp()
            ctx.save_for_backward(e)
            return x.sum()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return ctx.saved_tensors[0]

    x = X.clone().requires_grad_()
    torch.compile(lambda x: Scale.apply(x), backend="xla")(x).backward()
    assert type(x.grad) is torch.Tensor
    torch.testing.assert_close(x.grad, X.exp())


def test_an_input_that_is_written_to_after_forward():
    x, weight = X.clone(), torch.ones(32, 16, requires_grad=True)
    result = torch.compile(lambda x, w: (x * w).sum(), backend="xla")(x, weight)
    x.zero_()
    result.backward()
    torch.testing.assert_close(weight.grad, X)


@pytest.mark.parametrize("options", [{}, {"bucket": "powers_of_two"}])
def test_sizes_that_change(options):
    model = network()
    compiled = torch.compile(model, backend="xla", dynamic=True, options=options)
    for rows in (5, 11, 6):
        x = X[:rows].clone()
        wanted = gradients(model, lambda x=x: model(x).square().mean())
        found = gradients(model, lambda x=x: compiled(x).square().mean())
        torch.testing.assert_close(found, wanted)


def test_batch_norm_and_a_result_that_is_saved():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Sigmoid())
    twin = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Sigmoid())
    twin.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend="xla")
    for _ in range(2):
        found = gradients(model, lambda: compiled(X).square().mean())
        torch.testing.assert_close(found, gradients(twin, lambda: twin(X).square().mean()))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
