"""In-place ops, views, out=, buffers, aliases: what eager writes is written, nothing else is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.like_eager.compiled import assert_like_eager, assert_same, fallbacks


def matrix(requires_grad: bool = False) -> Tensor:
    return torch.arange(12.0).view(3, 4).requires_grad_(requires_grad)


def write_row_of_a_transpose(x: Tensor) -> Tensor:
    x.t()[1].mul_(3)
    return x.sum()


def write_where_negative(x: Tensor) -> Tensor:
    x[x > 5] = -1.0
    return x * 2


def write_two_views(x: Tensor) -> tuple[Tensor, Tensor]:
    first, rest = x[0], x[1:]
    first += 1
    rest.copy_(first.expand(2, 4))
    return first, rest


def swap_shape(x: Tensor) -> Tensor:
    x.t_()
    return x + 1


def write_into_out(x: Tensor, out: Tensor) -> Tensor:
    return torch.add(x, 1, out=out)


def write_copy_only(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] = 7
    y.relu_().add_(1)
    return y


def write_copy_of_leaf(x: Tensor) -> Tensor:
    y = x * 2
    y[0] = 0
    return y.sigmoid_()


def read_after_write(x: Tensor) -> tuple[Tensor, Tensor]:
    before = x.sum()
    x.zero_()
    return before, x.sum()


WRITES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "add_": (lambda x: x.add_(1), lambda: (matrix(),)),
    "self": (lambda x: x.mul_(x), lambda: (matrix(),)),
    "slice": (lambda x: x[:, 1:3].fill_(5), lambda: (matrix(),)),
    "transpose": (write_row_of_a_transpose, lambda: (matrix(),)),
    "mask": (write_where_negative, lambda: (matrix(),)),
    "two views": (write_two_views, lambda: (matrix(),)),
    "metadata": (swap_shape, lambda: (matrix(),)),
    "out": (write_into_out, lambda: (matrix(), torch.zeros(3, 4))),
    "out is input": (lambda x: torch.mul(x, 2, out=x), lambda: (matrix(),)),
    "copy only": (write_copy_only, lambda: (matrix(),)),
    "copy of a leaf": (write_copy_of_leaf, lambda: (matrix(True),)),
    "read after write": (read_after_write, lambda: (matrix(),)),
    "index_copy_": (
        lambda x, i, y: x.index_copy_(0, i, y),
        lambda: (matrix(), torch.tensor([2, 0]), torch.ones(2, 4)),
    ),
    "index_put_": (
        lambda x: x.index_put_((torch.tensor([-1]),), x[0] + 1),
        lambda: (matrix(),),
    ),
    "scatter_": (
        lambda x, i: x.scatter_(1, i, 9.0),
        lambda: (matrix(), torch.tensor([[0], [3], [1]])),
    ),
    "another dtype": (lambda x, y: x.copy_(y), lambda: (matrix(), torch.arange(4))),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    function, inputs = WRITES[name]
    assert_like_eager(function, *inputs(), calls=3)


def returned_aliases(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    return x, x[1], x.t(), y, y, y.view(-1), y[0]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_share_memory_as_in_eager(requires_grad: bool) -> None:
    assert_like_eager(returned_aliases, matrix(requires_grad))


def write_one_read_other(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


def write_what_backward_needs(x: Tensor, positions: Tensor) -> Tensor:
    picked = positions[positions.remainder(3)]
    positions.mul_(2)
    return x * picked * positions


def test_backward_sees_the_values_from_before_a_write() -> None:
    x = matrix(requires_grad=True)
    assert_like_eager(write_what_backward_needs, x, torch.tensor([0, 2, 1, -4]), calls=2)


def test_inputs_that_overlap() -> None:
    x = matrix()
    assert_like_eager(write_one_read_other, x, x[1:])
    assert_like_eager(write_one_read_other, x[1:], x)
    assert_like_eager(write_one_read_other, x, x)


class Cache(nn.Module):
    """Keys and values of past steps, written at a position that is a tensor or a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 4))
        self.register_buffer("values", torch.zeros(8, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.keys.index_copy_(0, position, x)
        self.values[position] = x * 2
        return torch.softmax(x @ self.keys.T, -1) @ self.values


def test_key_value_cache() -> None:
    eager = Cache()
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="xla")
    for step in range(6):
        x, position = torch.randn(1, 4), torch.tensor([step])
        assert_same(compiled(x, position), eager(x, position))
        assert_same(dict(module.named_buffers()), dict(eager.named_buffers()))
    assert fallbacks() == {}


def test_batch_norm_statistics() -> None:
    eager = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="xla")
    for _ in range(3):
        x = torch.randn(6, 4)
        assert_same(compiled(x), eager(x))
        assert_same(dict(module.named_buffers()), dict(eager.named_buffers()))
    assert_same(compiled.eval()(x), eager.eval()(x))
    assert fallbacks() == {}


def test_buffer_replaced_and_rebound() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.last = x * self.count
            return self.last + 1

    eager = Counter()
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="xla")
    for _ in range(3):
        x = torch.randn(3)
        assert_same(compiled(x), eager(x))
        assert_same(dict(module.named_buffers()), dict(eager.named_buffers()))
    module.count = torch.tensor(10)
    assert compiled(torch.ones(3)).tolist() == [12.0] * 3


def test_tied_weights_stay_tied() -> None:
    eager = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    eager[2].weight = eager[0].weight
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="xla")
    x = torch.randn(3, 4)
    for model in (eager, compiled):
        model(x).sum().backward()
    assert_same(module[0].weight.grad, eager[0].weight.grad)
    with torch.no_grad():
        module[0].weight.mul_(2)
        eager[0].weight.mul_(2)
    assert_same(compiled(x), eager(x))


@pytest.mark.parametrize("write", ["in place", "data", "new data", "load"])
def test_parameter_changed_outside(write: str) -> None:
    module = nn.Linear(4, 4)
    compiled = torch.compile(module, backend="xla")
    x = torch.randn(3, 4)
    compiled(x)
    with torch.no_grad():
        if write == "in place":
            module.weight.mul_(2)
        elif write == "data":
            module.weight.data.mul_(2)
        elif write == "new data":
            module.weight.data = torch.randn(4, 4)
        else:
            module.load_state_dict({k: v * 3 for k, v in module.state_dict().items()})
    assert_same(compiled(x), module(x))


def test_nothing_else_is_written() -> None:
    """Bits of inputs, parameters and saved gradients, over forward and backward."""
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    compiled = torch.compile(module, backend="xla")
    x = torch.randn(5, 4, requires_grad=True)
    held = [x, *module.parameters()]
    before = [t.detach().clone() for t in held]
    y = compiled(x)
    cotangent = torch.ones_like(y)
    y.backward(cotangent)
    y.detach().fill_(0)
    assert all(torch.equal(t, b) for t, b in zip(held, before, strict=True))
    assert torch.equal(cotangent, torch.ones_like(y))


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 2, lambda x: x + 0, lambda x: x.clone(), lambda x: torch.ones(3) + 0 * x],
    ids=["computed", "no change", "copy", "constant"],
)
def test_results_belong_to_the_caller(function: Callable[[Tensor], Tensor]) -> None:
    compiled = torch.compile(function, backend="xla")
    x = torch.arange(3.0)
    first = compiled(x)
    expected = first.clone()
    second = compiled(x)
    first.fill_(99)
    assert torch.equal(x, torch.arange(3.0))
    assert torch.equal(second, expected)
    assert torch.equal(compiled(x), expected)


def test_constant_results_are_fresh() -> None:
    compiled = torch.compile(lambda: (torch.ones(3), torch.tensor([1.0, 2.0])), backend="xla")
    for result in compiled():
        result.fill_(99)
    ones, literal = compiled()
    assert ones.tolist() == [1.0, 1.0, 1.0]
    assert literal.tolist() == [1.0, 2.0]
    assert fallbacks() == {}


def test_gradients_accumulate() -> None:
    eager = nn.Linear(4, 2)
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="xla")
    for _ in range(3):
        x = torch.randn(5, 4)
        for model in (eager, compiled):
            model(x).square().mean().backward()
        assert_same(module.weight.grad, eager.weight.grad)
    module.weight.grad.zero_()
    compiled(x).square().mean().backward()
    eager.weight.grad = None
    eager(x).square().mean().backward()
    assert_same(module.weight.grad, eager.weight.grad)
