"""Sizes as expressions of symbols."""

from __future__ import annotations

import pytest
import sympy

from xla_dynamo.backend.passes.padding import sizes

pytestmark = pytest.mark.spine
s, t = sympy.symbols("s0 s1", positive=True, integer=True)


def test_products_are_ints_where_they_can_be() -> None:
    assert sizes.product([2, 3]) == 6
    assert isinstance(sizes.product([]), int)
    assert sizes.product([s, t, 2]) == 2 * s * t


def test_values_for_the_sizes_of_a_call() -> None:
    found = sizes.evaluated(2 * s + t, {s: 3, t: 4})
    assert (found, type(found)) == (10, int)
    assert sizes.evaluated(7, {}) == 7


def test_one_expression_in_two_forms() -> None:
    assert sizes.same(s * (t + 1), s * t + s)
    assert not sizes.same(s, t)


def test_a_refusal_knows_its_symbols() -> None:
    refused = sizes.Refused("no", [s * t, 3])
    assert refused.symbols == {s, t}
