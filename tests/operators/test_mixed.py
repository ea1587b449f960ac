"""A few operators of the sweep over mixed dtypes: both how they agree and how they may not."""

from __future__ import annotations

import pytest

from .cases import operators
from .doors import lazy
from .mixed import COMPUTES, DTYPE, KNOWN, calls, compare


@pytest.mark.parametrize("op", ["maximum", "addr", "mm"])
def test_agrees_with_eager(op: str) -> None:
    kinds = [how and how[0] for how in (compare(call, lazy) for call in calls(op))]
    expected = {"maximum": set(), "addr": {DTYPE}, "mm": {COMPUTES}}[op]
    assert len(kinds) > 20
    assert set(kinds) - {None} == expected


def test_what_may_disagree_exists() -> None:
    starts = [start for names in KNOWN.values() for group in names for start in group]
    assert all(any(op.startswith(start) for op in operators()) for start in starts)
