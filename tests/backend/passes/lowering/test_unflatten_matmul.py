"""Linear layers without flattening: fewer views, the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.lowering.unflatten_matmul import unflatten_matmul

aten = torch.ops.aten
pytestmark = pytest.mark.spine
CONTEXT = Context("test", WayIn.COMPILE, Target("cpu"))


def traced(function: Callable[..., Any], *inputs: Tensor) -> GraphModule:
    """`function` in aten ops, where a linear layer is views around addmm or mm."""
    return make_fx(function, tracing_mode="fake")(*inputs)


def targets(module: GraphModule) -> Counter[Any]:
    return Counter(node.target for node in module.graph.nodes if node.op == "call_function")


def layer(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """A linear layer and its gradients for a gradient of ones times its result."""
    out = F.linear(x, weight, bias)
    return (out, *torch.autograd.grad(out.square().sum() / 2, (x, weight, bias)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_linear_layer(dtype: torch.dtype) -> None:
    shapes = ((2, 3, 4), (5, 4), (5,))
    inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    expected = layer(*inputs)
    module = traced(layer, *inputs)
    before = targets(module)
    assert before[aten.addmm.default] == 1
    assert before[aten.mm.default] == 2
    unflatten_matmul(module.graph, CONTEXT)
    module.recompile()
    after = targets(module)
    # Only the gradient of the weight is a product of matrices: it sums over both flattened axes.
    assert after[aten.linear.default] == 1
    assert after[aten.matmul.default] == 1
    assert after[aten.mm.default] == 1
    assert after[aten.addmm.default] == 0
    for actual, wanted in zip(module(*inputs), expected, strict=True):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("equation", ["bthd,bshd->bhts", "btd,bsd->bts", "bth,bhd->btd"])
def test_einsum(equation: str) -> None:
    """Its dimensions of one go; no transpose moves any."""

    def gradients(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        out = torch.einsum(equation, x, y)
        return (out, *torch.autograd.grad(out.square().sum() / 2, (x, y)))

    sizes = dict(zip("bthds", (2, 3, 4, 5, 6), strict=True))
    shapes = [[sizes[name] for name in names] for names in equation.split("->")[0].split(",")]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    expected = gradients(*inputs)
    module = traced(gradients, *inputs)
    unflatten_matmul(module.graph, CONTEXT)
    module.recompile()
    assert targets(module).keys().isdisjoint({aten.squeeze.dim, aten.unsqueeze.default})
    permuted = [node for node in module.graph.nodes if node.target is aten.permute.default]
    assert all(1 not in node.meta["val"].shape for node in permuted)
    for actual, wanted in zip(module(*inputs), expected, strict=True):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (3, 1, 2, 0), (-1, -2, -3, -4), (2, 1, 0, 3)])
@pytest.mark.parametrize("shape", [(1, 3, 1, 4), (1, 1, 1, 1), (0, 1, 2, 1), (2, 3, 4, 5)])
def test_views_of_permuted(order: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """In any order, with any number of dimensions of one: the values of eager."""

    def views(x: Tensor) -> tuple[Tensor, ...]:
        permuted = x.permute(order)
        return permuted.squeeze(), permuted.unsqueeze(1), permuted.unsqueeze(0).squeeze()

    x = torch.arange(torch.Size(shape).numel()).reshape(shape)
    module = traced(views, x)
    unflatten_matmul(module.graph, CONTEXT)
    module.recompile()
    for actual, wanted in zip(module(x), views(x), strict=True):
        torch.testing.assert_close(actual, wanted)


def test_attention() -> None:
    """Batch and heads stay apart in all six products; copies and views in between go."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return (y, *torch.autograd.grad(y.square().sum(), (q, k, v)))

    inputs = [torch.randn(2, 5, 3, 4, dtype=torch.float64, requires_grad=True) for _ in "qkv"]
    expected = attend(*inputs)
    module = traced(attend, *inputs)
    assert targets(module)[aten.bmm.default] == 6
    unflatten_matmul(module.graph, CONTEXT)
    module.recompile()
    assert targets(module)[aten.matmul.default] == 6
    assert not targets(module).keys() & {aten.bmm.default, aten.view.default, aten.clone.default}
    for actual, wanted in zip(module(*inputs), expected, strict=True):
        torch.testing.assert_close(actual, wanted)


def test_loss_goes_on_with_rows() -> None:
    def loss(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(x, weight).flatten(0, 1), target)

    inputs = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randint(5, (6,))
    module = traced(loss, *inputs)
    unflatten_matmul(module.graph, CONTEXT)
    module.recompile()
    assert targets(module)[aten.mm.default] == 1
    assert targets(module)[aten.view.default] == 1
    torch.testing.assert_close(module(*inputs), loss(*inputs))


def test_transposed_weight() -> None:
    """GPT-2's Conv1D multiplies by the weight itself."""

    def conv1d(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.addmm(bias, x.view(-1, 4), weight).view(2, 3, 4)

    inputs = torch.randn(2, 3, 4), torch.randn(4, 4), torch.randn(4)
    module = traced(conv1d, *inputs)
    unflatten_matmul(module.graph, CONTEXT)
    module.recompile()
    assert targets(module) == {aten.t.default: 1, aten.linear.default: 1}
    torch.testing.assert_close(module(*inputs), conv1d(*inputs))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.view(3, 8) @ y.view(8, 3),  # other features than the tensor's
        lambda x, y: x.view(24) * y.view(24),
        lambda x, y: torch.addmm(y.view(6, 4), x.view(6, 4), x.view(6, 4)[:4], beta=2),
        lambda x, y: x.view(6, 4).sum(1),
        lambda x, y: x.long().view(6, 4).sum(0),
    ],
)
def test_what_is_no_layer_stays(function: Callable[..., Tensor]) -> None:
    inputs = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    module = traced(function, *inputs)
    before = targets(module)
    unflatten_matmul(module.graph, CONTEXT)
    module.recompile()
    assert targets(module) == before
    torch.testing.assert_close(module(*inputs), function(*inputs))


@pytest.mark.parametrize(("platform", "is_flat"), [("cpu", True), ("tpu", False)])
def test_a_layer_whose_columns_are_heads(platform: str, is_flat: bool) -> None:
    def heads(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias).view(2, 3, 4, 2).transpose(1, 2)

    inputs = torch.randn(2, 3, 5), torch.randn(8, 5), torch.randn(8)
    module = traced(heads, *inputs)
    unflatten_matmul(module.graph, Context("test", WayIn.COMPILE, Target(platform)))
    module.recompile()
    torch.testing.assert_close(module(*inputs), heads(*inputs))
    assert (aten.addmm.default in targets(module)) is is_flat
    assert (aten.linear.default in targets(module)) is not is_flat
