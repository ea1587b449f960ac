"""Rules and their forms on single platforms: how they are registered, found, and kept apart."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import xla_dynamo.backend.lowering.rules as rules
from xla_dynamo.backend.lowering import registry
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import PerPlatform, Target, lower, lowering_for

aten = torch.ops.aten
RULES_FOLDER = Path(rules.__file__).parent


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[Any, registry.Rule]:
    empty: dict[Any, registry.Rule] = {}
    monkeypatch.setattr(registry, "RULES", empty)
    return empty


def _called(rule: Any, platform: str) -> str:
    with lowering_for(Target(platform)):
        return rule()


def test_a_form_takes_the_place_of_the_plain_rule_on_its_platform(table: Any) -> None:
    rule = PerPlatform(lambda: "plain")
    lower("op")(rule)
    lower("other")(lambda: "plain")
    rule.on("cpu")(lambda: "on the CPU")
    assert [_called(table["op"].function, name) for name in ("cpu", "tpu")] == [
        "on the CPU",
        "plain",
    ]
    assert _called(table["other"].function, "cpu") == "plain"


def test_two_rules_for_one_op_and_platform_are_an_error(table: Any) -> None:
    rule = lower("op")(PerPlatform(lambda: None))
    with pytest.raises(ValueError, match="op has two rules"):
        lower("op")(lambda: None)
    rule.on("cpu")(lambda: None)
    with pytest.raises(ValueError, match="two forms on cpu"):
        rule.on("cpu")(lambda: None)


def test_a_helper_has_forms_too() -> None:
    @PerPlatform
    def helper(x: int, *, by: int = 1) -> int:
        return x + by

    @helper.on("tpu")
    def form(x: int, *, by: int = 1) -> int:
        return helper.plain(x, by=by) * 100

    assert helper(1, by=2) == 3
    with lowering_for(Target("tpu")):
        assert helper(1, by=2) == 300
    assert helper(1) == 2


def test_bodies_of_two_targets_are_two() -> None:
    graph = make_fx(lambda x: aten.cumsum.default(x, 0), tracing_mode="fake")(torch.ones(1)).graph
    (node,) = graph.find_nodes(op="call_function", target=aten.cumsum.default)
    target = Target("cpu")
    body, exact = body_of(node, target), body_of(node, Target("cpu", numerics="eager"))
    plain = body_of(node, Target("cpu", numerics="xla"))
    assert isinstance(body, Body)
    assert isinstance(plain, Body)
    assert exact is body
    assert plain.text != body.text


# What only some files of rules may hold: (text, files and folders that may).
CONFINED = {
    '.on("cpu")': ("_numerics.py", "cpu"),
    "platform_dependent": (),
}


@pytest.mark.parametrize("text", CONFINED)
def test_forms_for_the_cpu_are_in_one_folder(text: str) -> None:
    """The plain mathematics of a rule stands alone."""
    allowed = [RULES_FOLDER / name for name in CONFINED[text]]
    holders = [path for path in RULES_FOLDER.rglob("*.py") if text in path.read_text()]
    assert [p for p in holders if not any(p.is_relative_to(a) for a in allowed)] == []


def test_rules_do_not_ask_for_the_target() -> None:
    """They have forms instead; "numerics" is for rules/_numerics.py to know."""
    found = {
        (path.name, alias.name)
        for path in RULES_FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.endswith("registry")
        for alias in node.names
    }
    asked = {(file, name) for file, name in found if name in ("platform", "numerics", "_target")}
    assert asked == {("_numerics.py", "numerics")}
