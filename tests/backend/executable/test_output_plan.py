"""Which arrays a graph computes, and how its results are made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from tests.backend.graphs import ops, traced
from xla_dynamo.backend.executable.output_plan import Output, plan
from xla_dynamo.backend.graph import fx

pytestmark = pytest.mark.spine
X = torch.arange(12.0).reshape(3, 4)

Program = Callable[[Tensor], Any]


def planned(program: Program, *, alone: Collection[int] = ()) -> tuple[GraphModule, list[Output]]:
    module = traced(program, X)
    count = len(fx.results(module.graph))
    outputs = plan(module.graph, count, count, alone)
    module.recompile()
    return module, outputs


def results(module: GraphModule, outputs: list[Output], x: Tensor) -> list[Any]:
    """The results of a call, made as in a launch of the arrays, which are dense."""
    arrays = [array.clone(memory_format=torch.contiguous_format) for array in module(x)]
    return [output.result([x], arrays) for output in outputs]


# A program, and how many arrays XLA computes for its results.
PROGRAMS: dict[str, tuple[Program, int]] = {
    "one": (lambda x: x + 1, 1),
    "transposed": (lambda x: (x + 1).t(), 1),
    "a base and its views": (lambda x: ((y := x + 1), y[0], y[:, 1]), 1),
    "views that overlap": (lambda x: ((y := x + 1)[:2], y[1:]), 1),
    "disjoint views": (lambda x: ((y := x + 1)[:1], y[1:]), 2),
    "expanded": (lambda x: (x.sum(1, keepdim=True)).expand(3, 4), 1),
    "the argument": (lambda x: (x, x + 1), 1),
    "a view of the argument": (lambda x: x.t()[1:], 0),
    "a duplicate": (lambda x: ((y := x + 1), y), 1),
    "no elements": (lambda x: (x + 1)[:0], 0),
    "a constant": (lambda x: (x + 1, None), 1),
    "negative": (lambda x: ((z := torch.complex(x, x)), z.conj().imag), 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_made_of_as_few_arrays_as_eager_has_tensors(name: str) -> None:
    program, arrays = PROGRAMS[name]
    module, outputs = planned(program)
    assert len(fx.results(module.graph)) == arrays
    ours, theirs = X.clone(), X.clone()
    actual, expected = results(module, outputs, ours), program(theirs)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    for mine, wanted in zip(actual, expected, strict=True):
        if wanted is None:
            assert mine is None
            continue
        torch.testing.assert_close(mine, wanted, check_stride=True)
        assert mine.is_neg() == wanted.is_neg()
        assert mine.dtype == wanted.dtype
    pairs = [(i, j) for i in range(len(expected)) for j in range(i) if expected[i] is not None]
    for i, j in pairs:
        assert shares(actual[i], actual[j]) == (shares(expected[i], expected[j]) and arrays < 2)
    assert [shares(y, ours) for y in actual] == [shares(y, theirs) for y in expected]


def shares(x: Any, y: Any) -> bool:
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or not x.numel():
        return False
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def test_without_aliasing_each_result_has_an_array_of_its_own() -> None:
    module, outputs = planned(lambda x: ((y := x + 1), y, y.t()), alone=range(3))
    first, second, third = results(module, outputs, X)
    assert torch.equal(first, X + 1)
    assert not shares(first, second)
    assert not shares(first, third)


def test_what_is_alone_shares_memory_with_nothing_and_the_others_do() -> None:
    module, outputs = planned(lambda x: ((y := x + 1), y.t(), y.view(4, 3)), alone={1})
    first, second, third = results(module, outputs, X)
    assert torch.equal(second, (X + 1).t())
    assert not shares(first, second)
    assert shares(first, third)


def test_a_result_that_is_given_twice_is_two_tensors_of_one_memory() -> None:
    module, outputs = planned(lambda x: ((y := x + 1), y))
    first, second = results(module, outputs, X)
    assert first is not second
    assert shares(first, second)
    assert [output.detaches for output in outputs] == [False, True]


def test_a_transposed_result_is_computed_as_it_lies_in_memory() -> None:
    module, (output,) = planned(lambda x: (x + 1).t().clone())
    assert ops(module.graph)[-1] == "permute.default"
    assert module(X)[0].is_contiguous()
    assert output.view == ((4, 3), (1, 4), 0)
    assert output.restrides


def test_results_beyond_the_strided_ones_have_no_strides() -> None:
    module = traced(lambda x: (x + 1, (x * 2).t()), X)
    _, saved = plan(module.graph, 1, 1)
    assert saved == Output(array=1, restrides=True)
