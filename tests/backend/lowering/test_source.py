"""The user's line of a node, among the frames of libraries."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.backend.graphs import named, traced
from xla_dynamo.backend.lowering.source import Location, first_location, location_of

pytestmark = pytest.mark.spine
LIBRARY = 'File "/env/site-packages/torch/nn/linear.py", line 9, in forward\n    return f(x)\n'
OWN = 'File "/home/me/model.py", line 12, in forward\n    y = self.layer(x)\n'
OUTER = 'File "/home/me/train.py", line 3, in step\n    model(x)\n'


def graph() -> torch.fx.Graph:
    return traced(lambda x: x.exp().sin(), torch.ones(2)).graph


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (OUTER + OWN + LIBRARY, ("/home/me/model.py", 12, "y = self.layer(x)")),
        (LIBRARY, ("/env/site-packages/torch/nn/linear.py", 9, "return f(x)")),
        (None, ("", 0, "")),
    ],
)
def test_the_innermost_own_frame(trace: str | None, expected: tuple[str, int, str]) -> None:
    node = named(graph(), "exp")
    node.meta["stack_trace"] = trace
    assert location_of(node) == Location("aten.exp.default", *expected)


def test_a_module_where_no_line_is_known() -> None:
    node = named(graph(), "exp")
    node.meta["nn_module_stack"] = {"a": ("L['model']", nn.ReLU), "b": ("L['model'].fc", nn.Linear)}
    assert str(location_of(node)) == "L['model'].fc (Linear)"
    assert str(Location("aten.exp.default")) == "(no source line)"


def test_as_mlir() -> None:
    assert Location("aten.exp.default").mlir() == 'loc("aten.exp.default")'
    located = Location("aten.exp.default", 'a "b".py', 3)
    assert located.mlir() == 'loc("aten.exp.default"("a \\"b\\".py":3:0))'


def test_the_first_line_of_a_graph() -> None:
    found = graph()
    assert first_location(found) == Location("")
    named(found, "exp").meta["nn_module_stack"] = {"a": ("model", nn.ReLU)}
    assert str(first_location(found)) == "model (ReLU)"
    named(found, "sin").meta["stack_trace"] = OWN
    assert str(first_location(found)) == "/home/me/model.py:12"
