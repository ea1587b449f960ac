"""numerics="xla" gives up what the table of rewrites says, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import Tensor

from tests.like_eager.rules import run
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules import _numerics
from xla_dynamo.backend.lowering.rules._numerics import REWRITES

TESTS = Path(__file__).parents[3]
BACKEND = TESTS.parent / "xla_dynamo" / "backend"
aten = torch.ops.aten

DOUBLE = torch.float64
ZERO, ZEROS = torch.tensor([-0.0]), torch.tensor([-0.0, 0.0, 1.5])
ONES = torch.ones(49, dtype=DOUBLE)
WHOLE = torch.arange(-99.0, 100.0)
INF, MASK = torch.tensor([torch.inf, torch.nan]), torch.tensor([False, False])

# A helper -> calls whose results XLA's rewrite changes.
REWRITTEN: dict[str, list[tuple[Any, ...]]] = {
    "plus_zero": [(aten.linspace.default, 0, -2, 3), (aten.arange.start_step, 0, -2, -0.5)],
    "is_dropped": [(aten.add.Tensor, ZEROS, 0), (aten.sub.Tensor, ZEROS, -0.0)],
    "begun_with_zero": [
        (aten.sum.dim_IntList, ZERO, [0]),
        (aten.mean.dim, ZERO, [0]),
        (aten.cumsum.default, ZERO, 0),
    ],
    "at_least": [(aten.clamp_min.default, ZEROS, 0.0)],
    "at_most": [(aten.clamp_max.default, ZEROS, -0.0)],
    "relu": [(aten.relu.default, ZEROS)],
    "divided": [(aten.mean.dim, ONES, [0])],
    "ones_where": [(aten.mul.Tensor, INF, MASK)],
    "exp2": [(aten.exp2.default, WHOLE)],
    "log2": [(aten.log2.default, 2**WHOLE)],
    "log10": [(aten.log10.default, 10 ** torch.arange(-30.0, 30.0))],
}
# Calls that no row of the table is about.
KEPT: dict[str, tuple[Any, ...]] = {
    "sum": (aten.sum.dim_IntList, torch.tensor([1.0, -0.0, 2.0]), [0]),
    "sum of integers": (aten.add.Tensor, torch.tensor([3, 4]), 0),
    "mean of a power of two": (aten.mean.dim, torch.arange(64.0), [0]),
    "quotient": (aten.div.Tensor, torch.randn(9), torch.randn(9)),
    "clamp": (aten.clamp.default, torch.randn(9), -0.5, 0.5),
    "matrix product": (aten.mm.default, torch.eye(3), torch.randn(3, 3)),
    "angle of zeros": (aten.atan2.default, ZEROS, -ZEROS),
    "saturating conversion": (aten._to_copy.default, torch.tensor([-1.0, 300.0])),
    "scan of integers": (aten.cumsum.default, torch.tensor([-3]), 0),
}


def _is_eagers(numerics: str, op: Any, *arguments: Any) -> bool:
    """Whether a rule gives eager's result to the last bit, signs of zeros included."""
    expected: Tensor = op(*arguments)
    with lowering_for(Target("cpu", numerics=numerics)):
        actual = run(op, *arguments).to(expected.dtype)
    signs = [result.signbit() & ~result.isnan() for result in (actual, expected)]
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    return bool(same.all()) and torch.equal(*signs)


@pytest.mark.parametrize("helper", REWRITTEN)
def test_the_default_is_eager_and_xla_differs(helper: str) -> None:
    """Where "xla" no longer differs, jaxlib has given the rewrite up, and a row can go."""
    for call in REWRITTEN[helper]:
        assert _is_eagers("eager", *call)
        assert not _is_eagers("xla", *call)


@pytest.mark.parametrize("op", [aten.sinh.default, aten.cosh.default], ids=str)
def test_exponentials_lose_digits_with_xla(op: Any) -> None:
    x = torch.linspace(-80, 80, 1001)
    errors = {}
    for numerics in ("eager", "xla"):
        with lowering_for(Target("cpu", numerics=numerics)):
            errors[numerics] = (run(op, x) / op(x.double()) - 1).nan_to_num().abs().max()
    assert errors["eager"] < 5e-7 < errors["xla"]


@pytest.mark.parametrize("numerics", ["eager", "xla"])
def test_rounding_is_no_conversion_that_could_be_dropped(numerics: str) -> None:
    with lowering_for(Target("cpu", numerics=numerics)):
        rounded = jax.make_jaxpr(lambda x: _numerics.rounded_to(x, jnp.bfloat16))(1.5)
    steps = [equation.primitive.name for equation in rounded.eqns]
    assert steps == (["reduce_precision"] if numerics == "eager" else ["convert_element_type"] * 2)


@pytest.mark.parametrize("name", KEPT)
def test_all_else_is_the_same(name: str) -> None:
    assert _is_eagers("eager", *KEPT[name])
    assert _is_eagers("xla", *KEPT[name])


def test_the_option_reaches_the_rules() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.clamp(min=0), x.sum(0)

    for numerics, expected in {"eager": [True, False], "xla": [False, True]}.items():
        compiled = torch.compile(program, backend="xla", options={"numerics": numerics})
        assert [bool(result.signbit()) for result in compiled(ZERO)] == expected
    assert [bool(result.signbit()) for result in program(ZERO)] == [True, False]


@pytest.mark.parametrize("row", REWRITES, ids=lambda row: row.rewrite)
def test_a_row_names_its_test_and_its_cures(row: _numerics.Rewrite) -> None:
    path, _, name = row.test.partition("::")
    tree = ast.parse((TESTS / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for cure in row.cures:
        assert (BACKEND / cure).is_file() if "/" in cure else hasattr(_numerics, cure)


def test_every_helper_has_a_row() -> None:
    cured = {cure for row in REWRITES for cure in row.cures}
    # What is decorated wraps another function.
    helpers = {name for name, value in vars(_numerics).items() if hasattr(value, "__wrapped__")}
    assert {name for name in helpers if not name.startswith("_")} <= cured
    assert set(REWRITTEN) < cured
