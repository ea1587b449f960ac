"""Arguments are padded, results are cut: no program is needed to see it."""

from __future__ import annotations

import pytest
import sympy
import torch

from xla_dynamo.backend.executable.padded_call import PaddedCall, Saved
from xla_dynamo.backend.executable.padded_layout import Layout
from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.plan import Agreement, PaddedGraph, Plan, Result, ways
from xla_dynamo.errors import XlaDynamoError

pytestmark = pytest.mark.spine
s, t = sympy.symbols("s0 s1", positive=True, integer=True)
REAL, BUCKETS = {s: 3, t: 2}, {s: 4, t: 4}


def graph(*results: Result, names: tuple[str, ...] = ("x",)) -> PaddedGraph:
    dims = ((plain(s),),)
    numbers = ((torch.int64, (s, s + t)),)
    return PaddedGraph(Plan(BUCKETS, {}), names, dims, results, numbers, frozenset({s}))


def test_numbers_of_the_call_are_arguments() -> None:
    seen = []

    def run(arguments: list[torch.Tensor]) -> list[torch.Tensor]:
        seen.extend(arguments)
        return [arguments[0] + 1, torch.empty(()), torch.empty(())]

    results = (Result((plain(s),), (1,)), Result(argument=0), Result(number=2 * s))
    call = PaddedCall(
        run, graph(*results), REAL, 3, Saved(Agreement(), {}, REAL, BUCKETS, frozenset())
    )
    x = torch.randn(3)
    got = call([x])
    assert torch.equal(got[0], x + 1)
    assert got[1] is x
    assert got[2] == 6
    assert seen[1].tolist() == [3, 5]


def test_what_forward_saved_is_cut_where_backward_pads_otherwise() -> None:
    agreement = Agreement(saved={"x": ways()})
    agreement.saved["x"][frozenset(), frozenset()] = plain(s), plain(t)
    saved = Saved(agreement, {0: "x"}, REAL, BUCKETS, frozenset())
    x = torch.randn(3, 2)
    padded = Layout((plain(s), plain(t)), REAL, BUCKETS).pad(x)
    assert torch.equal(saved.without_padding(0, padded), x)
    assert saved.without_padding(0, x) is x
    with pytest.raises(XlaDynamoError, match="bug of xla_dynamo"):
        saved.without_padding(0, torch.empty(4, 3))
