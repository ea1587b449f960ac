"""Gradients of log_softmax and of losses on it, from the input and rows' maxima and sums."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import xla_dynamo
from tests.backend.graphs import ops, traced
from tests.like_eager.compiled import assert_like_eager
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.joint.log_softmax_backward import recompute_log_softmax

INF, NAN = float("inf"), float("nan")


def logits(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3), (2, 5, 3, 4)])
def test_cross_entropy(shape: tuple[int, ...], smoothing: float) -> None:
    batch = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    target = torch.randint(5, batch)
    target.view(-1)[1:2] = -100
    weight = torch.rand(5, dtype=torch.float64)
    loss = partial(F.cross_entropy, label_smoothing=smoothing)
    reductions = ("mean", "sum", "none")

    def plain(target: Tensor, *each: Tensor) -> list[Tensor]:
        return [
            loss(x, target, reduction=r).square() for x, r in zip(each, reductions, strict=True)
        ]

    def weighted(target: Tensor, weight: Tensor, *each: Tensor) -> list[Tensor]:
        return [
            loss(x, target, weight=weight, reduction=r) * 3
            for x, r in zip(each, reductions, strict=True)
        ]

    inputs = [logits(*shape) for _ in reductions]
    assert_like_eager(plain, torch.zeros(batch, dtype=torch.int64), *inputs)
    assert_like_eager(weighted, target, weight, *inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4, 7), (4, 1), (3, 0), (0, 3), (3,), ()])
def test_log_softmax(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    dims = [-1, 0] if len(shape) > 1 else [-1]

    def losses(*each: Tensor) -> list[Tensor]:
        results = [F.log_softmax(x, dim) for dim, x in zip(dims * 2, each, strict=True)]
        return [x.square() if i < len(dims) else x for i, x in enumerate(results)]

    assert_like_eager(losses, *(logits(*shape, dtype=dtype) for _ in dims * 2))


def test_a_loss_along_another_dim() -> None:
    target = torch.randint(5, (6,))
    assert_like_eager(lambda x, t: F.nll_loss(F.log_softmax(x, 0), t), logits(6, 5), target)


def test_several_losses_of_one_input() -> None:
    def losses(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logs = F.log_softmax(x, 1)
        return F.nll_loss(logs, target), logs.exp().sum(), logs.mean(0).sum()

    assert_like_eager(losses, logits(6, 5), torch.randint(5, (6,)))


def test_extreme_rows() -> None:
    rows = [[1e30, -1e30, 0, 3], [INF, 1, 2, 3], [-INF, 1, 2, 3], [-INF] * 4, [NAN, 1, 2, 3]]
    x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    loss = partial(F.cross_entropy, reduction="none")
    compiled = torch.compile(loss, backend="xla")
    target = torch.tensor([0, 1, 1, 2, 3])
    got, want = (
        torch.autograd.grad(f(x, target), x, torch.ones(5, dtype=torch.float64))[0]
        for f in (compiled, loss)
    )
    torch.testing.assert_close(got, want, equal_nan=True)


def test_batches_of_any_size() -> None:
    compiled = torch.compile(F.cross_entropy, backend="xla", dynamic=True)
    for size in (4, 9, 5):
        x, target = logits(size, 7), torch.randint(7, (size,))
        (got,), (want,) = (
            torch.autograd.grad(loss(x, target), x) for loss in (compiled, F.cross_entropy)
        )
        torch.testing.assert_close(got, want)


def test_nothing_of_the_size_of_the_logits_is_saved() -> None:
    with xla_dynamo.capture() as stages:
        compiled = torch.compile(F.cross_entropy, backend="xla")
        compiled(logits(32, 50), torch.randint(50, (32,))).backward()
    forward, backward = (stage.stablehlo for stage in stages)
    results = forward.split("func.func @main(")[1].split("{\n")[0].split("->")[1]
    assert "tensor<32x1xf64>" in results
    assert "tensor<32x50xf64>" not in results
    assert "stablehlo.reduce" not in backward


@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3, 4)])
def test_a_loss_needs_no_log_softmax(shape: tuple[int, ...]) -> None:
    """Not on the CPU: one number of each row is subtracted from; the value is the same."""
    target = torch.randint(5, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    for platform, is_left in (("tpu", False), ("cpu", True)):
        module = traced(F.cross_entropy, logits(*shape).detach(), target)
        context = Context("test", WayIn.COMPILE, Target(platform))
        assert recompute_log_softmax(module.graph, context) is not is_left
        assert ("_log_softmax.default" in ops(module.graph)) is is_left
        x = logits(*shape).detach()
        module.recompile()
        torch.testing.assert_close(module(x, target)[0], F.cross_entropy(x, target))


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_the_gradient_divides_numbers_of_rows_where_it_is_computed_again(platform: str) -> None:
    def gradient(x: Tensor, target: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            loss = F.cross_entropy(leaf, target)
        return torch.autograd.grad(loss, leaf)[0]

    x, target = logits(6, 5).detach(), torch.randint(5, (6,))
    module = traced(gradient, x, target)
    assert recompute_log_softmax(module.graph, Context("", WayIn.COMPILE, Target(platform)))
    (division,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.div.Tensor)
    assert division.meta["val"].shape == ((6, 5) if platform == "cpu" else (6, 1))
    module.recompile()
    torch.testing.assert_close(module(x, target)[0], gradient(x, target))


def test_a_loss_along_another_dim_needs_it() -> None:
    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(F.log_softmax(x, 0), target)

    module = traced(loss, logits(6, 5).detach(), torch.randint(5, (6,)))
    assert not recompute_log_softmax(module.graph, Context("", WayIn.COMPILE, Target("tpu")))


def test_one_number_has_no_classes_on_any_platform() -> None:
    graph = traced(partial(F.log_softmax, dim=0), torch.tensor(2.0)).graph
    assert not recompute_log_softmax(graph, Context("", WayIn.COMPILE, Target("tpu")))


@pytest.mark.parametrize(("kernels", "rewritten"), [("torch", 0), ("xla", 1)])
def test_between_kernels_of_pytorchs_it_is_one_of_them(kernels: str, rewritten: int) -> None:
    weight = torch.randn(64, 32, 3, 3)
    target = torch.randint(64, (4, 10, 10))

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(F.conv2d(x, weight), target)

    options = {"cpu_kernels": kernels, "disk_cache": False}
    compiled = torch.compile(loss, backend="xla", options=options)
    x = torch.randn(4, 32, 12, 12, requires_grad=True)
    xla_dynamo.reset_metrics()
    gradients = [torch.autograd.grad(function(x), x) for function in (compiled, loss)]
    torch.testing.assert_close(*gradients)
    assert xla_dynamo.passes()["recompute_log_softmax"].changed == rewritten
