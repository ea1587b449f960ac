"""FX graphs as modules of the torch dialect and as StableHLO; calls stand for rules."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from tests.backend.graphs import named, traced
from xla_dynamo.backend.lowering import importer, linker

pytestmark = pytest.mark.spine
X = torch.ones(2, 3)


def test_ops_and_their_lines() -> None:
    graph = traced(lambda x, y: (x + y).relu(), X, X * 2).graph
    named(graph, "relu").meta["stack_trace"] = (
        'File "model.py", line 7, in forward\n    return relu(x)\n'
    )
    text = importer.text(importer.import_graph(graph, {}))
    assert "func.func @main(%arg0: !torch.vtensor<[2,3],f32>" in text
    assert "torch.aten.add.Tensor" in text
    assert "torch.aten.relu" in text
    assert 'loc("model.py":7:0)' in text
    assert 'loc("aten.relu.default"(#loc' in text
    assert 'loc("aten.add.Tensor")' in text


def test_a_call_takes_the_tensors_and_gives_the_results_of_its_node() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.sort(x.exp(), 1)
        return places, values + x

    graph = traced(function, X).graph
    sort = named(graph, "sort")
    target = sort.target
    text = importer.text(importer.import_graph(graph, {sort: "the_rule"}))
    declared = "func.func private @the_rule(!torch.vtensor<[2,3],f32>) -> "
    assert declared + "(!torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],si64>)" in text
    assert text.count("call @the_rule") == 1
    assert "torch.aten.sort" not in text
    assert sort.target is target  # the graph is as it was


def test_two_calls_of_one_name_are_declared_once() -> None:
    graph = traced(lambda x: x.flip(0).exp().flip(0), X).graph
    calls = dict.fromkeys((named(graph, "flip"), named(graph, "flip_1")), "reverse")
    text = importer.text(importer.import_graph(graph, calls))
    assert text.count("func.func private @reverse") == 1
    assert text.count("call @reverse") == 2


def test_unsigned_dtypes_of_calls() -> None:
    graph = traced(lambda x: x.flip(0), torch.ones(2, dtype=torch.uint16)).graph
    text = importer.text(importer.import_graph(graph, {named(graph, "flip"): "reverse"}))
    assert "!torch.vtensor<[2],ui16>" in text


def test_stablehlo_keeps_calls_and_has_no_constant_of_another_dialect() -> None:
    graph = traced(lambda x: x.flip(0) + 2.5, X).graph
    module = importer.import_graph(graph, {named(graph, "flip"): "reverse"})
    artifact = importer.to_stablehlo(module, linker.stablehlo_version())
    assert artifact.startswith(b"ML")  # MLIR's bytecode
    text = importer.text(module)
    assert {"vhlo.call_v1", "vhlo.add_v1", "vhlo.constant_v1"} <= set(
        re.findall(r"vhlo\.\w+", text)
    )
    assert "2.5" in text
    assert not re.search(r"(arith|torch|func)\.", text)


def test_what_torch_mlir_refuses_is_an_error_with_its_words() -> None:
    graph = traced(lambda x: torch.linalg.qr(x)[0], X).graph
    with pytest.raises(importer.ImportRefused, match="linalg_qr"):
        importer.to_stablehlo(importer.import_graph(graph, {}), linker.stablehlo_version())
