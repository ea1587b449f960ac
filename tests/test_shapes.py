"""Shapes and numbers that change: one Dynamo graph, an executable per shape, a useful message."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters as dynamo_counters

import xla_dynamo
from tests.like_eager.compiled import assert_same, fallbacks
from tests.programs import run_in_threads


@pytest.fixture(autouse=True)
def count_from_zero() -> None:
    dynamo_counters.clear()


def dynamo_graphs() -> int:
    return dynamo_counters["stats"]["unique_graphs"]


def scaled(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y).relu() / x.shape[0] + x.shape[1]


def test_one_dynamo_graph_and_one_executable_per_shape() -> None:
    compiled = torch.compile(scaled, backend="xla", dynamic=True)
    shapes = [(3, 4), (5, 4), (3, 7), (6, 2), (5, 4), (3, 4)]
    for rows, columns in shapes:
        x, y = torch.randn(rows, columns), torch.randn(columns, 5)
        assert_same(compiled(x, y), scaled(x, y))
    assert dynamo_graphs() == 1
    assert len(xla_dynamo.compiles()) == len(set(shapes))
    assert fallbacks() == {}


def test_marked_dimension() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    compiled = torch.compile(model, backend="xla")
    for batch in (3, 5, 3, 8):
        x = torch.randn(batch, 4, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        gradient, gradient_ = (
            torch.autograd.grad(f(x).square().sum(), x)[0] for f in (compiled, model)
        )
        torch.testing.assert_close(gradient, gradient_)
    assert dynamo_graphs() == 1
    kinds = [record.graph.split()[-1] for record in xla_dynamo.compiles()]
    assert sorted(kinds) == ["backward"] * 3 + ["forward"] * 3


def test_shapes_without_a_mark_become_dynamic_at_the_second() -> None:
    compiled = torch.compile(scaled, backend="xla")
    for rows in (3, 5, 6, 7, 6):
        x, y = torch.randn(rows, 4), torch.randn(4, 5)
        assert_same(compiled(x, y), scaled(x, y))
    assert dynamo_graphs() == 2
    assert len(xla_dynamo.compiles()) == 4


def repeated(x: Tensor, count: int) -> tuple[Tensor, int, list[int]]:
    y = torch.cat([x[:-1], x.new_zeros(count)]).view(1, -1)
    return y.expand(x.shape[0], -1) * x[:, None], x.shape[0] * 2, [y.shape[1], count]


def test_sizes_in_results_and_factories() -> None:
    compiled = torch.compile(repeated, backend="xla", dynamic=True)
    for length, count in ((3, 2), (4, 5), (9, 2)):
        x = torch.randn(length)
        assert_same(compiled(x, count), repeated(x, count))
    assert dynamo_graphs() == 1
    assert fallbacks() == {}


SCALARS: dict[str, tuple[Callable[[Tensor, float], Tensor], list[float]]] = {
    "float": (lambda x, s: x * s + s / 3, [0.5, 1.5, 2.25, -4.0, 1e30]),
    "int": (lambda x, s: x * s - s, [2, 3, 5, 7, -11]),
}


@pytest.mark.parametrize("kind", SCALARS)
def test_numbers_that_change_are_arguments(kind: str) -> None:
    function, values = SCALARS[kind]
    compiled = torch.compile(function, backend="xla")
    x = torch.randn(3)
    for value in values:
        assert_same(compiled(x, value), function(x, value))
    # The first value is taken for a constant; from the second on, none compiles.
    assert len(xla_dynamo.compiles()) == 2
    assert fallbacks() == {}


def test_learning_rate_that_changes() -> None:
    """A schedule writes a Python float: eager's numbers, and no executable per value.

    (PyTorch itself, with any backend, captures a function again for each value of `alpha=`.)
    """
    weight = torch.randn(3)

    def step(weight: Tensor, gradient: Tensor, rate: float) -> None:
        weight.sub_(gradient * rate)

    compiled = torch.compile(step, backend="xla")
    expected = weight.clone()
    for index in range(5):
        gradient = torch.randn(3)
        compiled(weight, gradient, 0.1 / (index + 1))
        step(expected, gradient, 0.1 / (index + 1))
        assert_same(weight, expected)
    assert len(xla_dynamo.compiles()) == 2


def test_least_recently_used_executable_is_dropped() -> None:
    options = {"max_executables": 2, "disk_cache": False}
    compiled = torch.compile(torch.sin, backend="xla", dynamic=True, options=options)
    made = []
    for size in (3, 4, 3, 5, 3, 4):
        compiled(torch.randn(size))
        made.append(len(xla_dynamo.compiles()))
    assert made == [1, 2, 2, 3, 3, 4]  # 5 drops 4, which 3 was used after


def test_eviction_in_many_threads() -> None:
    options = {"max_executables": 1}
    compiled = torch.compile(torch.sin, backend="xla", dynamic=True, options=options)
    compiled(torch.randn(2))
    inputs = [torch.randn(size) for size in (3, 4, 5, 6)]

    def call(x: Tensor) -> list[Tensor]:
        return [compiled(x) for _ in range(20)]

    results = run_in_threads([lambda x=x: call(x) for x in inputs])
    for x, ours in zip(inputs, results, strict=True):
        torch.testing.assert_close(ours, [x.sin()] * 20)


def line_of(function: Callable[..., object], code: str) -> str:
    lines, start = inspect.getsourcelines(function)
    (offset,) = [i for i, line in enumerate(lines) if code in line]
    return f"{__file__}:{start + offset}"


def test_compile_record_says_what_changed_and_where() -> None:
    compiled = torch.compile(scaled, backend="xla", dynamic=True)
    compiled(torch.randn(3, 4), torch.randn(4, 5))
    compiled(torch.randn(3, 4), torch.randn(4, 6))
    compiled(torch.randn(3, 8), torch.randn(8, 6))
    first, second, third = xla_dynamo.compiles()
    assert first.location == line_of(scaled, "x @ y")
    assert second.reason == "L['y'] dimension 1 changed from 5 to 6"
    assert "L['x'] dimension 1 changed from 4 to 8" in third.reason
    assert third.shapes == ("float32[3, 8]", "float32[8, 6]")
    assert third.reason in str(third)
    assert third.location in str(third)


def test_forward_and_backward_bring_one_recompile_warning() -> None:
    layer = nn.Linear(4, 2)
    compiled = torch.compile(lambda x: layer(x).sin(), backend="xla", dynamic=True)

    def train() -> None:
        for rows in range(2, 12):
            compiled(torch.randn(rows, 4)).sum().backward()

    with pytest.warns(xla_dynamo.RecompileWarning) as caught:
        train()
    (warning,) = [w for w in caught if w.category is xla_dynamo.RecompileWarning]
    assert "0/0 forward" in str(warning.message)
    assert len(xla_dynamo.compiles()) == 20


def test_recompile_warning_names_argument_and_remedy() -> None:
    compiled = torch.compile(scaled, backend="xla", dynamic=True)
    y = torch.randn(4, 5)
    for rows in range(2, 9):
        compiled(torch.randn(rows, 4), y)
    with pytest.warns(xla_dynamo.RecompileWarning) as caught:
        compiled(torch.randn(9, 4), y)
    compiled(torch.randn(10, 4), y)  # warns no more
    (warning,) = [w for w in caught if w.category is xla_dynamo.RecompileWarning]
    message = str(warning.message)
    assert re.search(r"L\['x'\] dimension 0 changed from \d+ to \d+", message)
    assert line_of(scaled, "x @ y") in message
    assert re.search(r"Of these \d programs it would have made \d with 'powers_of_two'", message)
    assert "drop_last=True" in message


def test_a_jagged_tensor_is_made_of_values_and_offsets_inside() -> None:
    """As an argument it has a size that is no number, and the error says what to do."""
    values, offsets = torch.randn(5, 4), torch.tensor([0, 2, 5])

    def waves(values: Tensor, offsets: Tensor) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(values, offsets).sin().values()

    compiled = torch.compile(waves, backend="xla", options={"fallback": "error"})
    torch.testing.assert_close(compiled(values, offsets), values.sin())
    jagged = torch.nested.nested_tensor_from_jagged(values, offsets)
    with pytest.raises(xla_dynamo.UnsupportedOp, match=r"jagged nested tensor.*offsets") as caught:
        torch.compile(lambda x: x.sin(), backend="xla")(jagged)
    assert caught.value.remedy is not None
