"""What XLA cannot take runs on the CPU between compiled parts: eager's numbers, and a warning."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import xla_dynamo
from tests.like_eager.compiled import assert_same, fallbacks


@torch.library.custom_op("xla_dynamo_test::twice", mutates_args=(), device_types="cpu")
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda context, gradient: gradient * 2)


def around_custom_op(x: Tensor) -> Tensor:
    y = x.sin()
    y = twice(y)
    return y.cos().sum()


DATA_DEPENDENT: dict[str, Callable[[Tensor], Any]] = {
    "nonzero": lambda x: (x > 0).nonzero() + 1,
    "masked_select": lambda x: torch.masked_select(x * 2, x > 0).sin(),
    "mask": lambda x: (x * 2)[x > 0].sin() * 3,
    "unique": lambda x: torch.unique(x.detach().round()) * 2,
    "unique with counts": lambda x: torch.unique(x.detach().round(), return_counts=True),
    "two in a row": lambda x: x[x > 0][: x.shape[0]].nonzero().sum(),
    "item": lambda x: x + x.sum().item(),
    "size from data": lambda x: torch.ones(int(x.abs().sum().item()) + 1).sum() * x,
}


def differentiable(result: Any) -> bool:
    return isinstance(result, Tensor) and result.requires_grad


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_shapes_that_depend_on_data(name: str) -> None:
    function = DATA_DEPENDENT[name]
    capture = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(**capture):
        compiled = torch.compile(function, backend="xla", fullgraph=True)
        for size in (6, 6, 9):
            x = torch.randn(size, requires_grad=True)
            expected, actual = function(x), compiled(x)
            assert_same(actual, expected)
            if differentiable(expected):
                gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (actual, expected)]
                torch.testing.assert_close(*gradients)
    assert fallbacks() == {}


def test_one_program_for_the_whole_of_what_depends_on_data() -> None:
    compiled = torch.compile(lambda x: x.sin().nonzero(), backend="xla", fullgraph=True)
    for ones in (1, 2, 3, 0):
        x = torch.zeros(3)
        x[:ones] = 1
        assert_same(compiled(x), x.nonzero())
    assert len(xla_dynamo.compiles()) == 1


def test_unknown_op_warns_once_with_op_line_and_reason() -> None:
    compiled = torch.compile(around_custom_op, backend="xla")
    x = torch.randn(4, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [compiled(x) for _ in range(3)]
    (gradient,) = torch.autograd.grad(results[0], x)
    (warning,) = [w for w in caught if w.category is xla_dynamo.FallbackWarning]
    message = str(warning.message)
    lines, start = inspect.getsourcelines(around_custom_op)
    (offset,) = [i for i, line in enumerate(lines) if "twice(y)" in line]
    assert "xla_dynamo_test.twice.default" in message
    assert f"{__file__}:{start + offset}" in message
    assert "y = twice(y)" in message
    assert "no lowering" in message
    assert fallbacks() == {"fallback.xla_dynamo_test::twice": 3}
    expected = around_custom_op(x)
    assert_same(results[0], expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, x)[0])


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return twice(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return twice(gradients[0])


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
def test_results_and_gradients_around_an_unknown_op_are_eagers_tensors() -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = _Twice.apply(x + y.view(6))
        return z, z.detach(), z.contiguous(), z * 2

    x, y = (torch.ones(n, requires_grad=True) for n in ((6,), (2, 3)))
    results = torch.compile(program, backend="xla", fullgraph=True)(x, y)
    assert [z.requires_grad for z in results] == [True, False, True, True]
    assert [z is results[0] for z in results] == [True, False, True, False]
    results[3].sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    x.grad.mul_(2)
    assert x.grad.tolist() == [8] * 6
    assert y.grad.tolist() == [[4] * 3] * 2
    assert fallbacks() == {"fallback.xla_dynamo_test::twice": 2}


def test_control_flow_runs_on_the_cpu_and_is_counted() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 3, lambda x: x + 1, lambda x: x - 1, (x * 2,)).sin()

    compiled = torch.compile(program, backend="xla", fullgraph=True)
    x = torch.arange(4.0)
    with pytest.warns(xla_dynamo.FallbackWarning, match="cond at .*no lowering"):
        assert_same(compiled(x), program(x))
    assert_same(compiled(-x), program(-x))
    assert fallbacks() == {"fallback.higher_order::cond": 2}


def test_unknown_op_is_an_error_if_asked_for() -> None:
    compiled = torch.compile(around_custom_op, backend="xla", options={"fallback": "error"})
    with pytest.raises(Exception, match=r"xla_dynamo_test\.twice\.default at .*fallback") as raised:
        compiled(torch.randn(4))
    causes = {type(raised.value), type(raised.value.__cause__), type(raised.value.__context__)}
    inner = getattr(raised.value, "inner_exception", None)
    assert xla_dynamo.UnsupportedOp in causes | {type(inner)}


OPTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"options": {"fallbak": "cpu"}}, ["fallbak", "Did you mean 'fallback'", "disk_cache"]),
    ({"options": {"fallback": "gpu"}}, ["'gpu'", "'cpu', 'error'"]),
    ({"options": {"max_executables": 0}}, ["max_executables", ">= 1"]),
    ({"options": {"disk_cache": "yes"}}, ["disk_cache", "True, False"]),
    ({"options": {"matmul_precision": "low"}}, ["'low'", "'highest', 'high', 'medium'"]),
    ({"mode": "fastest"}, ["fastest", "default"]),
]


@pytest.mark.parametrize(("arguments", "texts"), OPTIONS)
def test_wrong_options_list_the_legal_ones(arguments: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(Exception, match=r"legal|>=|unknown") as raised:
        torch.compile(torch.sin, backend="xla", **arguments)(torch.randn(3))
    chain = [raised.value, raised.value.__cause__, getattr(raised.value, "inner_exception", None)]
    assert any(isinstance(error, xla_dynamo.OptionError) for error in chain)
    for text in texts:
        assert text in str(raised.value)


def test_option_error_is_not_swallowed_by_a_fallback() -> None:
    with pytest.raises(Exception, match="no_such_platform"):
        torch.compile(torch.sin, backend="xla", options={"platform": "no_such_platform"})(
            torch.randn(3)
        )


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_inputs(layout: torch.layout) -> None:
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    matrix = dense.to_sparse(layout=layout)
    x = torch.randn(2, 2)

    def function(matrix: Tensor, x: Tensor) -> Tensor:
        return torch.mm(matrix, x.sin()) + 1

    actual = torch.compile(function, backend="xla")(matrix, x)
    torch.testing.assert_close(actual, function(matrix, x))


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
@pytest.mark.filterwarnings("ignore:.*quantize")
def test_quantized_inputs() -> None:
    x = torch.quantize_per_tensor(torch.randn(5), 0.1, 3, torch.qint8)

    def function(x: Tensor) -> Tensor:
        return x.dequantize().sin()

    torch.testing.assert_close(torch.compile(function, backend="xla")(x), function(x))
