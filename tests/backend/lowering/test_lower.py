"""A graph goes to torch-mlir and to JAX rules, op by op, and comes out as one module."""

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import rules  # noqa: F401  (fills RULES)
from xla_dynamo.backend.lowering.lower import lower_graph
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.errors import UnsupportedOp

pytestmark = pytest.mark.spine
CPU = Target("cpu")
X = torch.ones(2, 3)


def test_each_op_goes_where_it_is_lowered_right() -> None:
    lowered = lower_graph(traced(lambda x: x.cumsum(0) * x, X).graph, CPU, keep_text=True)
    assert "torch.aten.mul.Tensor" in lowered.torch_dialect
    assert "call @aten.cumsum" in lowered.torch_dialect
    assert "stablehlo.multiply" in lowered.stablehlo
    assert "stablehlo.reduce_window" in lowered.stablehlo


def test_rules_can_do_without_torch_mlirs_lowerings() -> None:
    lowered = lower_graph(traced(lambda x: x * x, X).graph, CPU, keep_text=True, native=False)
    assert "call @aten.mul.Tensor" in lowered.torch_dialect


def test_the_same_program_at_another_line_is_the_same() -> None:
    one, two = (traced(lambda x: x.sin(), X).graph for _ in range(2))
    for line, graph in enumerate((one, two), start=7):
        (sine,) = fx.calls(graph)
        sine.stack_trace = f'  File "a.py", line {line}, in f\n    return x.sin()'
    first, second = lower_graph(one, CPU), lower_graph(two, CPU)
    assert first.canonical() == second.canonical()
    assert '"a.py":7' in first.stablehlo
    assert '"a.py":8' in second.stablehlo


@torch.library.custom_op("xla_dynamo_tests::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_op_that_nothing_lowers_is_named() -> None:
    with pytest.raises(UnsupportedOp, match=r"xla_dynamo_tests\.unknown"):
        lower_graph(traced(lambda x: unknown(x), X).graph, CPU)
