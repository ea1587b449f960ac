"""The list of passes: its contract, who leaves out what, what a run of a stage records."""

from __future__ import annotations

import inspect
import pkgutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import xla_dynamo
from xla_dynamo import config
from xla_dynamo.backend import passes, pipeline
from xla_dynamo.backend.graph import edit
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes import verify
from xla_dynamo.backend.passes.contract import Context, Pass, Stage, WayIn

pytestmark = pytest.mark.spine
aten = torch.ops.aten
ALL: list[Pass] = [each for stage in Stage for each in pipeline.PIPELINE[stage]]


def context(way_in: WayIn = WayIn.COMPILE, numerics: str = "eager") -> Context:
    return Context("test", way_in, Target("cpu", numerics=numerics))


def traced(function: object, *inputs: torch.Tensor) -> GraphModule:
    return make_fx(function, tracing_mode="fake")(*inputs)  # type: ignore[arg-type]


def test_every_pass_is_listed_once_and_has_the_signature() -> None:
    assert max(Counter(ALL).values()) == 1
    for each in ALL:
        signature = inspect.signature(each)
        assert [p.annotation for p in signature.parameters.values()] == ["Graph", "Context"], each
        assert signature.return_annotation == "bool", each
        assert each.__doc__, each


def test_every_module_of_passes_has_a_pass_in_the_list() -> None:
    listed = {each.__module__ for each in ALL}
    found = {
        module.name
        for module in pkgutil.walk_packages(passes.__path__, f"{passes.__name__}.")
        if not module.ispkg and ".passes.padding." not in module.name  # parts of one pass
    }
    assert found - listed == {f"{passes.__name__}.{name}" for name in ("contract", "verify")}


def test_folders_are_stages() -> None:
    for stage, members in pipeline.PIPELINE.items():
        folders = {each.__module__.split(".")[3] for each in members}
        expected = {stage.value, "numerics"} if stage is Stage.LOWERING else {stage.value}
        assert folders == expected


@pytest.mark.parametrize("way_in", WayIn)
def test_ways_in_are_rows_over_the_same_list(way_in: WayIn) -> None:
    omitted = pipeline.OMITTED[way_in]
    assert set(omitted) <= set(ALL)
    assert all(len(reason.split()) > 4 for reason in omitted.values())
    ran = [each for stage in Stage for each in pipeline.passes_of(stage, way_in)]
    assert ran == [each for each in ALL if each not in omitted]
    # Nobody goes without what keeps numbers right.
    assert set(pipeline.PIPELINE[Stage.LOWERING]) <= set(ran)


def test_compiling_leaves_nothing_out() -> None:
    assert not pipeline.OMITTED[WayIn.COMPILE]


def test_numerics_of_xla_leave_out_exactness_only() -> None:
    exact = pipeline.passes_of(Stage.LOWERING, WayIn.COMPILE)
    loose = pipeline.passes_of(Stage.LOWERING, WayIn.COMPILE, "xla")
    assert set(exact) - set(loose) == pipeline.EXACTNESS
    assert pipeline.materialize_inplace_sources in loose


def test_passes_are_counted_and_timed() -> None:
    gm = traced(lambda x: x.detach() / 3, torch.randn(4))
    pipeline.run(Stage.STATIC, gm.graph, context())
    pipeline.run(Stage.LOWERING, gm.graph, context())
    records = xla_dynamo.passes()
    assert next(iter(records)) == "pad_sizes"
    assert (records["specialize"].runs, records["specialize"].changed) == (1, 1)
    assert records["keep_exact_division"].changed == 1
    assert records["join_reverse_cumsum"].changed == 0
    assert all(record.seconds > 0 for record in records.values())


def test_the_graph_is_dumped_after_each_pass_that_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_DYNAMO_DUMP", str(tmp_path))
    config.config.cache_clear()
    try:
        gm = traced(lambda x: x.detach() / 3, torch.randn(4))
        pipeline.run(Stage.STATIC, gm.graph, context())
        pipeline.run(Stage.LOWERING, gm.graph, context())
    finally:
        monkeypatch.undo()
        config.config.cache_clear()
    first, second, _ = sorted(tmp_path.iterdir())
    assert first.name.endswith(".static.specialize.fx.py")
    assert second.name.endswith(".lowering.keep_exact_division.fx.py")
    assert "detach" not in first.read_text()
    assert "optimization_barrier" in second.read_text()


def _forgets_value(graph: Graph, context: Context) -> bool:
    (node,) = graph.find_nodes(op="call_function", target=aten.relu.default)
    with graph.inserting_after(node):
        graph.call_function(aten.neg.default, (node,))
    return True


def _forgets_line(graph: Graph, context: Context) -> bool:
    (node,) = graph.find_nodes(op="call_function", target=aten.relu.default)
    with graph.inserting_after(node):
        graph.call_function(aten.neg.default, (node,)).meta["val"] = node.meta["val"]
    return True


def _forgets_users(graph: Graph, context: Context) -> bool:
    (node,) = graph.find_nodes(op="call_function", target=aten.relu.default)
    node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
    node.args = (Graph().placeholder("elsewhere"),)
    return True


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (_forgets_value, "without a value"),
        (_forgets_line, "without the user's line"),
        (_forgets_users, "does not lint"),
    ],
)
def test_a_pass_that_breaks_the_contract_is_named(
    broken: Pass, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gm = traced(lambda x: x.relu().exp(), torch.randn(4))
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = '  File "user.py", line 7, in f\n    y = x.relu()\n'
    monkeypatch.setattr(pipeline, "PIPELINE", {Stage.STATIC: (broken,)})
    with pytest.raises(verify.BrokenGraph, match=f"^{broken.__name__} .*{text}"):
        pipeline.run(Stage.STATIC, gm.graph, context())


def test_nothing_symbolic_is_left_after_the_static_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = make_fx(lambda x: x.relu(), tracing_mode="symbolic")(torch.randn(4, 5))
    monkeypatch.setattr(pipeline, "PIPELINE", {Stage.STATIC: ()})
    with pytest.raises(verify.BrokenGraph, match="is symbolic after the static stage"):
        pipeline.run(Stage.STATIC, gm.graph, context())


def test_a_made_node_carries_the_line_and_what_autograd_knows() -> None:
    graph = traced(lambda x: x.relu(), torch.randn(4)).graph
    (relu,) = graph.find_nodes(op="call_function", target=aten.relu.default)
    relu.meta |= {"stack_trace": "line", "recompute": 1, "number": 3, "unbacked_bindings": {}}
    with graph.inserting_after(relu):
        made = edit.call(graph, aten.neg.default, relu, like=relu)
    assert {k: made.meta[k] for k in ("stack_trace", "recompute", "number")} == {
        "stack_trace": "line",
        "recompute": 1,
        "number": 3,
    }
    assert "unbacked_bindings" not in made.meta
    assert made.meta["val"].shape == (4,)
