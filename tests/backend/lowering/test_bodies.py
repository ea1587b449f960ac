"""Bodies of rules: one per signature, in the types that PyTorch declares, or why there is none."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Node

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import bodies, rules
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import RULES, Refusal, Rule, Target, Unsupported
from xla_dynamo.bounded import Bounded
from xla_dynamo.config import config

pytestmark = pytest.mark.spine
assert rules
CPU = Target("cpu")
aten = torch.ops.aten


def node_of(function: Callable[..., Any], *inputs: Tensor) -> Node:
    """The last op of a function."""
    return fx.calls(traced(function, *inputs).graph)[-1]


@pytest.fixture
def calls_of_rule(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of the rule of flip from here on."""
    seen: list[tuple[Any, ...]] = []

    def reverse(x: Any, dims: list[int]) -> Any:
        seen.append((x.shape, dims))
        return x[::-1]

    monkeypatch.setitem(RULES, aten.flip.default, Rule(reverse))
    monkeypatch.setattr(bodies, "_bodies", {})
    return seen


def test_equal_signatures_share_a_body(calls_of_rule: list[Any]) -> None:
    first = body_of(node_of(lambda x: x.flip(0), torch.ones(3)), CPU)
    second = body_of(node_of(lambda x: (x + 1).flip(0), torch.zeros(3)), CPU)
    assert first is second
    assert calls_of_rule == [((3,), [0])]


@pytest.mark.parametrize(
    ("function", "x", "target"),
    [
        (lambda x: x.flip(0), torch.ones(4), CPU),
        (lambda x: x.flip(0), torch.ones(3, dtype=torch.float64), CPU),
        (lambda x: x.flip(-1), torch.ones(3), CPU),
        (lambda x: x.flip(0), torch.ones(3), Target("cpu", "high")),
        (lambda x: x.flip(0), torch.ones(3), Target("cpu", numerics="xla")),
    ],
    ids=["shape", "dtype", "argument", "precision", "numerics"],
)
def test_what_makes_another_body(
    calls_of_rule: list[Any], function: Callable[..., Any], x: Tensor, target: Target
) -> None:
    first = body_of(node_of(lambda x: x.flip(0), torch.ones(3)), CPU)
    second = body_of(node_of(function, x), target)
    assert first is not second
    assert len(calls_of_rule) == 2


def test_values_of_arguments_tell_more_than_python_does() -> None:
    signatures = [bodies.leaf_signature(value) for value in (1, 1.0, True, 0.0, -0.0)]
    assert len(set(signatures)) == len(signatures)


def test_the_oldest_bodies_are_forgotten(
    calls_of_rule: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_bodies", Bounded(2))
    for size in (2, 3, 4, 4, 2):
        body_of(node_of(lambda x: x.flip(0), torch.ones(size)), CPU)
    assert [shape for shape, _ in calls_of_rule] == [(2,), (3,), (4,), (2,)]


def test_a_body_is_a_module_in_the_declared_types_without_locations() -> None:
    body = body_of(node_of(lambda x: x.sum(0), torch.ones(2, 3, dtype=torch.bool)), CPU)
    assert isinstance(body, Body)
    assert body.name == "aten.sum.dim_IntList"
    assert "func.func public @main(%arg0: tensor<2x3xi1>" in body.text
    assert "-> (tensor<3xi64>" in body.text
    assert body.text.count("#loc = ") == 1
    assert bodies.UNKNOWN_LOCATION in body.text
    assert ".py" not in body.text


def refusal(monkeypatch: pytest.MonkeyPatch, rule: Callable[..., Any]) -> Refusal:
    """What becomes of flip(x, [0]) of 3 floats with another rule."""
    monkeypatch.setitem(RULES, aten.flip.default, Rule(rule))
    monkeypatch.setattr(bodies, "_bodies", {})
    found = body_of(node_of(lambda x: x.flip(0), torch.ones(3)), CPU)
    assert isinstance(found, Refusal)
    return found


def test_a_rule_may_refuse_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(x: Any, dims: list[int]) -> Any:
        raise Unsupported("Not these.", "Take others.")

    assert refusal(monkeypatch, refuse) == Refusal("Not these.", "Take others.")


BUGS: dict[str, tuple[Callable[..., Any], str]] = {
    "raises": (lambda x, dims: 1 // 0, "ZeroDivisionError: .*by zero"),
    "shape": (lambda x, dims: x[:2], r"its result has shape \(2,\), in PyTorch \(3,\)"),
    "complex": (lambda x, dims: x * 1j, "its result is complex, in PyTorch torch.float32"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_of_a_rule_is_an_error_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    rule, text = BUGS[name]
    monkeypatch.setattr(bodies, "config", lambda: Strict(True))
    with pytest.raises((ZeroDivisionError, TypeError), match=text.split(": ")[-1]):
        refusal(monkeypatch, rule)
    monkeypatch.setattr(bodies, "config", lambda: Strict(False))
    with caplog.at_level(logging.WARNING):
        found = refusal(monkeypatch, rule)
    assert found.kind == "bug"
    assert found.reason.startswith("The rule that lowers it failed with ")
    assert "The rule that lowers aten.flip.default failed." in caplog.text


class Strict:
    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.dump = config().dump


def test_an_op_without_a_rule_and_a_dtype_without_a_form() -> None:
    node = node_of(lambda x: x + 1, torch.ones(2))
    node.target = torch.ops.prim.device.default
    refused = body_of(node, CPU)
    assert isinstance(refused, Refusal)
    assert refused.kind == "no rule"
    refused = body_of(node_of(lambda x: x.flip(0), torch.ones(2, dtype=torch.complex32)), CPU)
    assert isinstance(refused, Refusal)
    assert refused.reason == "XLA has no dtype torch.complex32."


TPU = Target("tpu")


def test_what_ends_the_process_on_a_tpu_is_refused() -> None:
    """libtpu aborts on complex128, and on singular vectors found with counters of 64 bits."""
    refused = body_of(node_of(lambda x: x * x, torch.ones(3, dtype=torch.complex128)), TPU)
    assert isinstance(refused, Refusal)
    assert refused.reason == "XLA's compiler for TPUs has no torch.complex128."
    for dtype, wide in ((torch.float32, False), (torch.float64, True)):
        factors = node_of(lambda x: aten._linalg_svd(x)[0], torch.ones(4, 4, dtype=dtype))
        body = body_of(factors.all_input_nodes[0], TPU)
        assert isinstance(body, Body)
        assert ("tensor<i64>" in body.text) is wide


def test_what_jax_has_not_on_a_tpu_is_refused() -> None:
    values = node_of(lambda x: aten.linalg_eig(x)[0], torch.ones(3, 3))
    refused = body_of(values.all_input_nodes[0], TPU)
    assert isinstance(refused, Refusal)
    assert refused.reason == "XLA does not have this computation on the platform tpu."


def test_random_ops_share_a_trace_but_not_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    op = aten.native_dropout.default
    original = RULES[op]

    def counted(key: Any, x: Any, *args: Any) -> Any:
        seen.append(x.shape)
        return original.function(key, x, *args)

    monkeypatch.setitem(RULES, op, replace(original, function=counted))
    monkeypatch.setattr(bodies, "_bodies", {})

    def masks(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.nn.functional.dropout(x, 0.5) for _ in range(3))

    torch.manual_seed(0)
    results = torch.compile(masks, backend="xla")(torch.ones(64, requires_grad=True))
    assert seen == [(64,)]
    assert not any(a.equal(b) for a, b in itertools.combinations(results, 2))
