"""Compiled functions in real programs: grad modes, graph breaks, nesting, threads, autocast."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import xla_dynamo
from tests.like_eager.compiled import assert_like_eager, assert_same, fallbacks
from tests.programs import run_in_threads

Pair = namedtuple("Pair", ["first", "second"])

STRUCTURES: dict[str, Callable[[Tensor], Any]] = {
    "none": lambda x: None,
    "number": lambda x: 3,
    "tuple": lambda x: (x + 1, 2, None, "text"),
    "list": lambda x: [x * 2],
    "dict": lambda x: {"a": x + 1, "b": {"c": x.sum()}},
    "named tuple": lambda x: Pair(x + 1, x.shape[0]),
    "shape": lambda x: x.shape,
    "nothing computed": lambda x: (x, x),
    "no tensor argument used": lambda x: torch.arange(4),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structure_of_results(name: str) -> None:
    assert_like_eager(STRUCTURES[name], torch.randn(3))


NOT_FINITE: dict[str, Callable[[Tensor], Any]] = {
    "a mask": lambda x: x * (x > 0),
    "a mask as a tensor of floats": lambda x: x * (x > 0).to(x.dtype) - 0.0,
    "a mask as a complex tensor": lambda x: torch.view_as_real(x * (x > 0).to(torch.complex64)),
    "a depthwise convolution": lambda x: F.conv1d(
        x.double()[None], torch.ones(3, 1, 2, dtype=torch.float64), groups=3
    ),
    "beta=0": lambda x: torch.addmm(x, x.nan_to_num(1, 2, 3), x.nan_to_num(), beta=0),
    "the gradient of aminmax": lambda x: torch.func.grad(
        lambda y: torch.aminmax(y, dim=0)[0].sum()
    )(x),
}


@pytest.mark.parametrize("name", NOT_FINITE)
def test_numbers_that_are_not_finite(name: str) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[inf, -0.0, -4.0], [-inf, nan, 2.0], [nan, -1.0, 0.0]])
    assert_like_eager(NOT_FINITE[name], x)


def cubed(x: Tensor) -> Tensor:
    return x * x * x


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_grad_modes(context: type) -> None:
    compiled = torch.compile(cubed, backend="xla")
    x = torch.randn(3, requires_grad=True)
    with context():
        expected, actual = cubed(x), compiled(x)
    assert_same(actual, expected)
    assert actual.is_inference() == expected.is_inference()
    assert_same(compiled(x), cubed(x))  # outside of it, one graph with gradients


def test_inference_tensors_as_inputs() -> None:
    with torch.inference_mode():
        x = torch.randn(3)
    compiled = torch.compile(cubed, backend="xla")
    for _ in range(2):
        assert_same(compiled(x), cubed(x))
        with torch.inference_mode():
            x.add_(1)


def test_no_grad_inside() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.norm()
        return x / scale + x.detach()

    assert_like_eager(function, torch.randn(3, requires_grad=True))


def test_double_backward_says_that_it_is_not_there() -> None:
    x = torch.randn(3, requires_grad=True)
    y = torch.compile(cubed, backend="xla")(x).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(gradient.sum(), x)


def test_backward_twice() -> None:
    x = torch.randn(3, requires_grad=True)
    y = torch.compile(cubed, backend="xla")(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    assert_same(torch.autograd.grad(y, x), first)
    assert_same(first[0], 3 * x.detach() ** 2)


def broken(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    y = y * 2
    if y.sum().item() > 0:
        y = y + 1
    print(end="")
    return y.cos()


def test_graph_breaks() -> None:
    for sign in (1.0, -1.0):
        assert_like_eager(broken, torch.full((3,), sign, requires_grad=True))
    assert len(xla_dynamo.compiles()) >= 4


def test_compiled_functions_call_compiled_functions() -> None:
    inner = torch.compile(cubed, backend="xla")
    assert_like_eager(lambda x: inner(x.sin()) + inner(x), torch.randn(3, requires_grad=True))


def test_modules_and_methods() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def loss(self, x: Tensor) -> Tensor:
            return self.inner(x).square().mean()

    model = Model()
    x = torch.randn(2, 3)
    expected = model.loss(x)
    assert_same(torch.compile(model.loss, backend="xla")(x), expected)
    model.inner.compile(backend="xla")
    assert_same(model.loss(x), expected)


def test_one_model_in_many_threads() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    compiled = torch.compile(model, backend="xla")
    inputs = [torch.randn(3, 4) for _ in range(8)]

    def call(x: Tensor) -> list[Tensor]:
        return [torch.autograd.grad(compiled(x).sum(), model[0].weight)[0] for _ in range(20)]

    results = run_in_threads([lambda x=x: call(x) for x in inputs])
    for x, gradients in zip(inputs, results, strict=True):
        expected = torch.autograd.grad(model(x).sum(), model[0].weight)[0]
        torch.testing.assert_close(gradients, [expected] * 20)
    assert fallbacks() == {}


def test_many_models_in_many_threads() -> None:
    models = [nn.Linear(4, width) for width in range(1, 9)]
    x = torch.randn(3, 4)
    calls = [lambda model=model: torch.compile(model, backend="xla")(x) for model in models]
    for model, result in zip(models, run_in_threads(calls), strict=True):
        assert_same(result, model(x))


def test_compiled_model_is_copied_and_saved() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="xla")
    x = torch.randn(2, 4)
    expected = compiled(x)
    assert_same(torch.compile(copy.deepcopy(model), backend="xla")(x), expected)
    assert_same(torch.compile(pickle.loads(pickle.dumps(model)), backend="xla")(x), expected)
    other = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    other.load_state_dict(model.state_dict())
    assert_same(other(x), expected)
    assert_same(copy.deepcopy(compiled)(x), expected)


def test_checkpoint_draws_the_same_dropout_again() -> None:
    """y = dropout(x) * w: the gradient by w is the mask that backward recomputed."""
    weight = torch.ones(200, requires_grad=True)
    x = torch.ones(200)

    def block(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) * weight

    compiled = torch.compile(
        lambda x: checkpoint(block, x, use_reentrant=False).sin(), backend="xla"
    )
    y = compiled(x)
    (gradient,) = torch.autograd.grad(y.sum(), weight)
    dropped = y == 0
    assert 50 < int(dropped.sum()) < 150
    assert torch.equal(gradient == 0, dropped)
    assert fallbacks() == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    x = torch.randn(5, 8)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype):
            y = model(x)
            return y, F.softmax(y, -1)

    compiled = torch.compile(function, backend="xla")
    for actual, expected in zip(compiled(x), function(x), strict=True):
        assert actual.dtype == expected.dtype
        # One rounding to 8 bits may fall the other way; it passes through two layers.
        torch.testing.assert_close(actual, expected, atol=2e-2, rtol=2e-2)
    gradient, gradient_ = (
        torch.autograd.grad(f(x)[1].square().sum(), model[0].weight)[0]
        for f in (compiled, function)
    )
    torch.testing.assert_close(gradient, gradient_, atol=2e-2, rtol=2e-2)
    assert fallbacks() == {}


def test_autocast_around_the_call() -> None:
    model = nn.Linear(4, 4)
    compiled = torch.compile(model, backend="xla")
    x = torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(x).dtype == torch.bfloat16
    assert compiled(x).dtype == torch.float32


@pytest.mark.parametrize(
    ("setting", "precision"), [("highest", "HIGHEST"), ("high", "HIGH"), ("medium", "DEFAULT")]
)
def test_float32_matmul_precision(setting: str, precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        with xla_dynamo.capture() as stages:
            torch.compile(torch.mm, backend="xla")(torch.randn(3, 4), torch.randn(4, 5))
    finally:
        torch.set_float32_matmul_precision(before)
    (stage,) = stages
    (product,) = [line for line in stage.stablehlo.splitlines() if "dot_general" in line]
    assert f"precision = [{precision}, {precision}]" in product


def test_seeds_make_runs_repeat() -> None:
    def draw(x: Tensor) -> tuple[Tensor, ...]:
        return torch.rand_like(x), torch.randn(3), torch.randperm(5), torch.bernoulli(x)

    compiled = torch.compile(draw, backend="xla")
    x = torch.full((50,), 0.5)
    first = compiled(x)
    torch.manual_seed(1)
    second = compiled(x)
    torch.manual_seed(1)
    assert_same(compiled(x), second)
    assert not torch.equal(first[0], second[0])
    assert sorted(second[2].tolist()) == [0, 1, 2, 3, 4]
    assert fallbacks() == {}


def test_out_may_be_an_empty_tensor() -> None:
    """It is made by one graph and resized by eager PyTorch, as Dynamo traces no such out=."""

    def doubled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(0)
        torch.cat([x, x], out=out)
        return out + 1

    x = torch.arange(3.0)
    torch.testing.assert_close(torch.compile(doubled, backend="xla")(x), doubled(x))


def test_results_without_elements_are_as_in_eager() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:, :0].exp().t(), x[:0] * 2, (x[:0] > 0), x + 1

    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    expected = function(x)
    actual = torch.compile(function, backend="xla", fullgraph=True)(x)
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert (ours.stride(), ours.requires_grad) == (theirs.stride(), theirs.requires_grad)
    sum(y.sum() for y in actual[:2]).backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    actual[2].resize_(4)
