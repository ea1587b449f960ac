"""Which symbols are one size at a call, and programs that are padded for that."""

from __future__ import annotations

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph

from tests.backend.passes.padding.test_walk import programs as programs
from xla_dynamo.backend.executable import padded_layout
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.padding.equal_sizes import alike, padded_alike

a, b, c, d = sympy.symbols("a b c d", integer=True)
PAIRS = ((a, c), (b, d))


def test_those_of_equal_size_are_one() -> None:
    assert alike(PAIRS, {a: 3, b: 5, c: 3, d: 5}) == {c: a, d: b}
    assert alike(PAIRS, {a: 3, b: 5, c: 5, d: 3}) == {}
    assert alike(PAIRS, {a: 3, b: 5, c: 3}) == {c: a}
    assert alike(((a, b), (b, c)), {a: 3, b: 3, c: 3}) == {b: a, c: a}
    assert alike(((a, b), (c, b)), {a: 3, b: 3, c: 3}) == {b: a}


def test_padded_to_the_same_size() -> None:
    assert padded_alike({c: a, d: b}, {a: 8, b: 8, c: 8, d: 6}) == {c: a}
    assert padded_alike({c: a}, {c: 8}) == {}


def loss(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x.flatten(0, 1), y.flatten())


def test_labels_of_the_sizes_of_tokens_stay_where_they_are(
    programs: list[Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded_layout, "poison", True)
    compiled = torch.compile(loss, backend="xla", options={"bucket": 8})
    # The last labels have as many elements, in other rows.
    for n, m, other in ((5, 6, (5, 6)), (4, 7, (4, 7)), (4, 6, (6, 4))):
        x = torch.randn(n, m, 4, dtype=torch.float64, requires_grad=True)
        y = torch.randint(0, 4, other)
        for given in (x, y):
            torch._dynamo.mark_dynamic(given, 0)
            torch._dynamo.mark_dynamic(given, 1)
        found, expected = (run(x, y) for run in (compiled, loss))
        torch.testing.assert_close(found, expected)
        slopes = [torch.autograd.grad(each, x) for each in (found, expected)]
        torch.testing.assert_close(*slopes)
    moving = [
        any(node.target is torch.ops.aten.index_select.default for node in fx.calls(graph))
        for graph in programs
    ]
    assert moving == [False, False, True, True]
