"""Formulas are found from how numbers changed together."""

from __future__ import annotations

import pytest

from xla_dynamo.compat.execution.size_formulas import formula, position

pytestmark = pytest.mark.spine
S, T = (16, 24, 9), (5, 7, 31)  # what two sizes were in three windows


@pytest.mark.parametrize(
    "wanted",
    [
        lambda s, t: s,
        lambda s, t: 3 * s,
        lambda s, t: t - 1,
        lambda s, t: s * t,
        lambda s, t: 8 * s * t,
        lambda s, t: 3 * s + 2,
        lambda s, t: t // 2,
        lambda s, t: (s + 1) // 2,
    ],
)
def test_a_formula_holds_for_other_sizes(wanted) -> None:
    history = tuple(map(wanted, S, T))
    # What stands for the sizes: their values in a window that was not seen.
    found = formula(history, {S: 40, T: 11})
    assert found == wanted(40, 11)


def test_what_has_no_formula_has_none() -> None:
    assert formula((5, 6, 1000), {S: 40, T: 11}) is None


def test_where_something_is_is_no_product() -> None:
    assert position(tuple(s - 1 for s in S), {S: 40}) == 39
    assert position(tuple(s // 2 for s in S), {S: 40}) == 20
    assert position(tuple(s * t for s, t in zip(S, T, strict=True)), {S: 40, T: 11}) is None
