"""Ops of the user that write to their arguments: recorded or compiled, with eager's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla.debug.metrics as met
from torch import Tensor
from torch._inductor import config as inductor_config

import xla_dynamo
from tests.like_eager.compiled import fallbacks
from tests.like_eager.lazy import XLA, assert_lockstep

library = torch.library
X = torch.arange(6.0).reshape(2, 3)
pytestmark = pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")


@library.custom_op("mutable_tests::add_", mutates_args={"x"})
def add_(x: Tensor, y: Tensor) -> None:
    x.numpy()[...] += y.numpy()  # the CPU's kernel alone can do this


@library.custom_op("mutable_tests::both", mutates_args={"x", "z"})
def both(x: Tensor, y: Tensor, z: Tensor | None = None) -> Tensor:
    x.add_(y)
    return x.clone() if z is None else z.mul_(2) + x


both.register_fake(lambda x, y, z=None: torch.empty_like(x))


@library.custom_op("mutable_tests::scale_", mutates_args={"xs"})
def scale_(xs: list[Tensor], factor: float) -> None:
    for x in xs:
        x.mul_(factor)


@library.triton_op("mutable_tests::triton_", mutates_args={"x"})
def triton_(x: Tensor, y: Tensor) -> None:
    x.copy_(x * y + 1)  # where there is no kernel of Triton


library.define("mutable_tests::returned_", "(Tensor(a!) x, Tensor y) -> Tensor(a!)")
library.impl("mutable_tests::returned_", "CPU", lambda x, y: x.mul_(y))


def cache(x: Tensor) -> Tensor:
    """A cache of keys and one of values in one tensor."""
    pages = x.new_zeros(2, 2, 3)
    keys, values = pages.unbind()
    both(keys, x, values)
    add_(values[1], x[0])
    return pages


def views(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    row, column = y[0], y[:, 1]
    add_(row, x[1])
    add_(y.t(), y.t().clone())
    return y, row, column


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "a result": lambda x: (y := x * 2, add_(y, x), y + 1)[2],
    "an argument": lambda x: (add_(x, x * 2), x * 1)[1],
    "several": lambda x: (y := x * 2, z := x + 1, both(y, x, z) * 2, y, z)[2:],
    "none": lambda x: (y := x * 2, both(y, x), y),
    "a list": lambda x: (y := x * 2, z := x + 1, scale_([y, z], 3.0), y + z)[3],
    "views": views,
    "views of one cache": cache,
    "a kernel of Triton": lambda x: (y := x * 2, triton_(y, x), y + 1)[2],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lazily(name: str) -> None:
    assert_lockstep(PROGRAMS[name], X)


@pytest.mark.parametrize("backend", ["xla", "openxla"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_for_tensors_of_the_device(name: str, backend: str) -> None:
    assert_lockstep(torch.compile(PROGRAMS[name], backend=backend, fullgraph=True), X)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_for_tensors_of_the_cpu(name: str, version: int) -> None:
    x, y = X.clone(), X.clone()
    with inductor_config.patch(enable_auto_functionalized_v2=version == 2):
        actual = torch.compile(PROGRAMS[name], backend="xla", fullgraph=True)(x)
    torch.testing.assert_close((actual, x), (PROGRAMS[name](y), y))


def test_both_forms_on_the_device() -> None:
    with inductor_config.patch(enable_auto_functionalized_v2=False):
        assert_lockstep(torch.compile(PROGRAMS["several"], backend="xla", fullgraph=True), X)


def test_a_fallback_is_counted_and_warned_of_by_the_name_of_the_op() -> None:
    met.clear_all()
    for function in (PROGRAMS["a result"], torch.compile(PROGRAMS["a result"], backend="xla")):
        with pytest.warns(xla_dynamo.FallbackWarning, match=r"mutable_tests.add_.*test_mutable"):
            function(X.to(XLA))
    assert met.counter_value("mutable_tests::add_") == 2
    assert fallbacks() == {"fallback.mutable_tests::add_": 1}


def test_an_op_may_return_what_it_writes_to() -> None:
    y = (X * 2).to(XLA)
    result = torch.ops.mutable_tests.returned_(y, X.to(XLA))
    assert result is y
    torch.testing.assert_close(y.cpu(), X * X * 2)


def test_arguments_may_share_elements() -> None:
    def overlapping(x: Tensor) -> Tensor:
        y = x * 2
        both(y[0], x[1], y)
        add_(y, y)
        return y

    assert_lockstep(overlapping, X)


def test_a_gradient_is_refused_and_not_left_out() -> None:
    x = X.to(XLA).requires_grad_()
    result = both(X.to(XLA), x)
    with pytest.raises(RuntimeError, match=r"mutable_tests.both.*no formula for a gradient"):
        result.sum().backward()


def test_an_op_that_is_defined_again() -> None:
    for factor in (2, 3):

        def scale(x: Tensor, factor: float = factor) -> None:
            x.mul_(factor)

        with library._scoped_library("mutable_tests", "FRAGMENT") as scope:
            scope.define("again_(Tensor(a!) x) -> ()")
            scope.impl("again_", scale, "CPU")
            x = X.to(XLA)
            torch.ops.mutable_tests.again_(x)
            torch.testing.assert_close(x.cpu(), X * factor)
