"""Graphs as JSON, and back."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend.graph import edit, rng_keys, stored
from xla_dynamo.backend.graph.plain import NotPlain
from xla_dynamo.backend.graph.text import text_of
from xla_dynamo.backend.graph.torch_private import FakeTensorMode

aten = torch.ops.aten
pytestmark = pytest.mark.spine


def placeholder(graph: Graph, name: str, value: Tensor) -> Node:
    node = graph.placeholder(name)
    node.meta["val"] = value
    return node


def example() -> GraphModule:
    """A view of an argument, a random op, several results, a constant, and no plain number left."""
    mode, graph = FakeTensorMode(), Graph()
    big = torch.empty(40)
    x = placeholder(graph, "primals_1", mode.from_tensor(big[8:32].view(4, 6)))
    x.meta["argument"] = True
    constant = graph.get_attr("_tensor_constant0")
    constant.meta["val"] = mode.from_tensor(torch.empty(6, dtype=torch.bfloat16))
    with mode:
        view = edit.call(graph, aten.t.default, x, like=x)
        low = edit.call(graph, aten.add.Scalar, view, float("-inf"), like=x)
        pair = edit.call(graph, aten.max.dim, low, -1, True, like=x)
        first = edit.call(graph, operator.getitem, pair, 0, like=x)
        key = edit.insert(graph, rng_keys.new_key, (), {}, like=x, value=rng_keys.new_key())
        ones = edit.call(graph, aten.full.default, [4], 1, dtype=torch.int8, like=x)
    drawn = (aten.bernoulli.default, 0, key, view)
    value = mode.from_tensor(torch.empty(6, 4))
    random = edit.insert(graph, rng_keys.call, drawn, {"generator": None}, like=x, value=value)
    graph.output((view, first, random, constant, ones, None))
    view.stack_trace, pair.stack_trace = "line of the view", "a line of its own"
    pair.meta["nn_module_stack"] = {"L['self']": ("L['self'].layer", torch.nn.Linear)}
    held = torch.arange(6).to(torch.bfloat16)
    return GraphModule({"_tensor_constant0": held}, graph)


def again(module: GraphModule, lines: list[str | None], now: list[str | None]) -> GraphModule:
    return stored.loads(stored.dumps(module, lines), FakeTensorMode(), now)


def test_a_graph_comes_back_as_it_was() -> None:
    module = example()
    back = again(module, [], [])
    assert text_of(back.graph) == text_of(module.graph)
    assert [n.name for n in back.graph.nodes] == [n.name for n in module.graph.nodes]
    constant = back._tensor_constant0
    assert torch.equal(constant, module._tensor_constant0)  # type: ignore[arg-type]
    back.graph.lint()


def test_values_share_memory_where_they_did() -> None:
    back = {node.name: node for node in again(example(), [], []).graph.nodes}
    x, view, low = (back[name].meta["val"] for name in ("primals_1", "t_default", "add_scalar"))
    memory = x.untyped_storage()
    assert (x.storage_offset(), memory.nbytes()) == (8, 160)
    assert view.untyped_storage()._cdata == memory._cdata
    assert low.untyped_storage()._cdata != memory._cdata
    assert back["primals_1"].meta["argument"]
    assert "argument" not in back["t_default"].meta


def test_lines_are_those_of_the_program_as_it_is_now() -> None:
    module = example()
    lines = [None, "another line", "line of the view"]
    back = {n.name: n for n in again(module, lines, [None, "?", "where it is now"]).graph.nodes}
    assert back["t_default"].stack_trace == "where it is now"
    assert back["max_dim"].stack_trace == "a line of its own"
    assert back["primals_1"].stack_trace is None
    assert list(back["max_dim"].meta["nn_module_stack"].values()) == [["L['self'].layer", "Linear"]]


def test_what_another_process_could_not_make_is_refused() -> None:
    def with_node(target: object, *args: object) -> GraphModule:
        module = example()
        with module.graph.inserting_before(module.graph.output_node()):
            module.graph.call_function(target, args)  # type: ignore[arg-type]
        return module

    for module in (with_node(len), with_node(aten.sin.default, lambda: 0)):
        with pytest.raises(NotPlain):
            stored.dumps(module, [])
    for wrong in (torch.zeros(2**15), torch.zeros(4, 4).t()[1:], torch.zeros(2).to_sparse()):
        module = example()
        module._tensor_constant0 = wrong
        with pytest.raises(NotPlain, match="constant"):
            stored.dumps(module, [])
    module = example()
    conjugate = FakeTensorMode().from_tensor(torch.zeros(2, dtype=torch.complex64)).conj()
    module.graph.find_nodes(op="placeholder")[0].meta["val"] = conjugate
    with pytest.raises(NotPlain, match="unusual"):
        stored.dumps(module, [])
