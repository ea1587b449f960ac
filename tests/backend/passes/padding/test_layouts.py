"""Layouts of padded dimensions through reshapes."""

from __future__ import annotations

import pytest
import sympy

from xla_dynamo.backend.passes.padding.layouts import Dim, constant, plain, reshaped, with_factors

pytestmark = pytest.mark.spine
s, t = sympy.symbols("s0 s1", positive=True, integer=True)


def test_static_factors_extend_the_one_before_them() -> None:
    assert with_factors(12 * s, [s, 4, 3]) == plain(12 * s)
    assert with_factors(4 * s * t, [s, t, 4]).factors == (s, 4 * t)
    assert with_factors(4 * s, [4, s]).factors == (4, s)


def test_merging_and_splitting_a_padded_dimension() -> None:
    merged = reshaped([plain(s), plain(t), plain(6)], [s * t, 6])
    assert merged is not None
    assert [dim.factors for dim in merged] == [(s, t), (6,)]
    assert reshaped(merged, [s, t, 2, 3]) == [plain(s), plain(t), plain(2), plain(3)]
    assert reshaped([plain(12 * s)], [s, 3, 4]) == [plain(s), plain(3), plain(4)]


@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        ([plain(s * t)], [s, t]),  # the padding is behind all elements, not behind each row
        ([plain(4 * s)], [4, s]),
        ([plain(s), plain(t)], [t, s]),
    ],
)
def test_where_elements_would_move(dims: list[Dim], sizes: list[sympy.Expr]) -> None:
    assert reshaped(dims, sizes) is None


def test_what_is_the_same_everywhere_has_any_layout() -> None:
    assert constant(s).factors is None
    assert constant(3) == plain(3)
    assert constant(s).is_padded
    assert not plain(3).is_padded
