"""What XLA cannot take runs on the CPU between compiled parts: eager's numbers, and a warning."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import xla_dynamo
from tests.like_eager.compiled import assert_same, fallbacks
from xla_dynamo.backend.executable import compile as compiling
from xla_dynamo.backend.lowering import bodies, registry
from xla_dynamo.config import config


@torch.library.custom_op("xla_dynamo_test::twice", mutates_args=(), device_types="cpu")
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda context, gradient: gradient * 2)


@torch.library.custom_op("xla_dynamo_test::refused", mutates_args=(), device_types="cpu")
def refused(x: Tensor) -> Tensor:
    raise ValueError("not these operands")


refused.register_fake(torch.empty_like)


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


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)  # the default, later
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
    assert "xla_dynamo does not know how to express this op in XLA. It runs on the CPU" in message
    assert "Write this step with other ops, or keep it out of the compiled function." in message
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
    with pytest.warns(xla_dynamo.FallbackWarning, match="cond at .*is not compiled for XLA"):
        assert_same(compiled(x), program(x))
    assert_same(compiled(-x), program(-x))
    assert fallbacks() == {"fallback.higher_order::cond": 2}


def test_unknown_op_is_an_error_if_asked_for() -> None:
    compiled = torch.compile(around_custom_op, backend="xla", options={"fallback": "error"})
    with pytest.raises(Exception, match=r"xla_dynamo_test\.twice\.default at .*fallback") as raised:
        compiled(torch.randn(4))
    error = getattr(raised.value, "inner_exception", raised.value)
    assert isinstance(error, xla_dynamo.UnsupportedOp)
    assert error.op == "xla_dynamo_test.twice.default"
    assert error.location is not None
    assert error.location.startswith(f"{__file__}:")
    assert error.reason == "xla_dynamo does not know how to express this op in XLA."
    assert error.remedy is not None
    assert error.remedy in str(error)


@pytest.fixture
def broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("the rule is wrong")

    aten, own = torch.ops.aten, torch.ops.xla_dynamo_test
    for op in (aten.special_spherical_bessel_j0.default, own.refused.default):
        monkeypatch.setitem(registry.RULES, op, registry.Rule(broken))


def _lenient(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    """As for users: bugs of lowerings are reported, and another way is taken."""
    lenient = dataclasses.replace(config(), strict=False)
    for module in modules:
        monkeypatch.setattr(module, "config", lambda: lenient)


def test_a_bug_in_a_rule_is_an_error_under_the_strict_switch(broken_rule: None) -> None:
    compiled = torch.compile(torch.special.spherical_bessel_j0, backend="xla")
    with pytest.raises(ZeroDivisionError, match="the rule is wrong"):
        compiled(torch.ones(3, 5))


def test_a_bug_in_a_rule_is_reported_to_users(
    broken_rule: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _lenient(monkeypatch, bodies)
    x = torch.ones(3, 7)
    with pytest.warns(xla_dynamo.FallbackWarning) as warned:
        actual = torch.compile(torch.special.spherical_bessel_j0, backend="xla")(x)
    assert_same(actual, torch.special.spherical_bessel_j0(x))
    (text,) = [str(warning.message) for warning in warned]
    assert "failed with ZeroDivisionError: the rule is wrong." in text
    assert "This is a bug of xla_dynamo: please report it" in text
    assert "The rule that lowers aten.special_spherical_bessel_j0.default failed." in caplog.text
    assert "in broken" in caplog.text  # the traceback


def test_a_rule_may_fail_where_eager_raises(broken_rule: None) -> None:
    compiled = torch.compile(refused, backend="xla")
    reason = "Eager PyTorch refuses these operands: not these operands."
    with (
        pytest.warns(xla_dynamo.FallbackWarning, match=reason),
        pytest.raises(ValueError, match="not these operands"),
    ):
        compiled(torch.ones(2))


@pytest.fixture
def refused_by_torch_mlir(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_graph = compiling.lower_graph

    def refuse(*args: Any, native: bool = True, **details: Any) -> Any:
        if native:
            raise xla_dynamo.CompileError("no such op in the dialect")
        return lower_graph(*args, native=native, **details)

    monkeypatch.setattr(compiling, "lower_graph", refuse)


def test_a_graph_that_torch_mlir_refuses_is_an_error_under_the_strict_switch(
    refused_by_torch_mlir: None,
) -> None:
    compiled = torch.compile(torch.sin, backend="xla", options={"fallback": "error"})
    with pytest.raises(Exception, match="no such op in the dialect"):
        compiled(torch.ones(2))


def test_a_graph_that_torch_mlir_refuses_is_lowered_by_the_rules_for_users(
    refused_by_torch_mlir: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _lenient(monkeypatch, compiling)
    assert_same(torch.compile(torch.erf, backend="xla")(torch.ones(2)), torch.ones(2).erf())
    assert "no such op in the dialect" in caplog.text
    assert "bug of xla_dynamo" in caplog.text
    assert xla_dynamo.counters() == {"torch_mlir_refused": 1}


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
