"""torch-mlir's module and the bodies of rules become one module, which computes on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx import Node

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import importer, linker, rules
from xla_dynamo.backend.lowering.bodies import Body, body_of
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.lowering.source import Location
from xla_dynamo.backend.runtime import pjrt, transfers
from xla_dynamo.errors import CompileError, InstallationError

pytestmark = pytest.mark.spine
assert rules
X = torch.arange(6.0).reshape(2, 3)
HIGHEST = linker.Precision("HIGHEST", "HIGHEST")


def linked(
    function: Callable[..., Any],
    *inputs: Tensor,
    called: str = "",
    precision: str = "HIGHEST",
    convolutions: str = "HIGHEST",
    aliases: Mapping[int, int] | None = None,
) -> Any:
    """`function` as a linked module; the rules of the ops `called` are called."""
    graph = traced(function, *inputs).graph
    calls: dict[Node, str] = {}
    bodies: dict[str, tuple[Body, Location]] = {}
    for number, node in enumerate(n for n in fx.calls(graph) if str(n.target) in called.split()):
        body = body_of(node, Target("cpu"))
        assert isinstance(body, Body)
        calls[node] = name = f"{body.name}.{number}"
        bodies[name] = body, Location(str(node.target), "user.py", 10 + number)
    module = importer.import_graph(graph, calls)
    artifact = importer.to_stablehlo(module, linker.stablehlo_version())
    return linker.link(artifact, bodies, linker.Precision(precision, convolutions), aliases or {})


def test_bodies_are_private_functions_at_the_lines_of_their_calls() -> None:
    flip = "aten.flip.default"
    module = linked(lambda x: (x.flip(0), x.exp().flip(1)), X, called=flip)
    text = linker.text(module)
    assert re.findall(r"func.func private @([\w.]+)\(", text) == ["aten.flip.0", "aten.flip.1"]
    for line in (10, 11):
        assert f'loc("user.py":{line}:0)' in text
    assert text.count(f'loc("{flip}"(#loc') == 2
    assert "user.py" not in linker.text(module, locations=False)


def test_helpers_of_bodies_do_not_collide() -> None:
    """Two rules that call a function of the same name in JAX."""
    one = Body("one", _body("stablehlo.add"))
    two = Body("two", _body("stablehlo.multiply"))
    graph = traced(lambda x: x.flip(0).flip(1), X).graph
    first, second = fx.calls(graph)
    module = importer.import_graph(graph, {first: "one.0", second: "two.0"})
    artifact = importer.to_stablehlo(module, linker.stablehlo_version())
    bodies = {"one.0": (one, Location("one")), "two.0": (two, Location("two"))}
    module = linker.link(artifact, bodies, HIGHEST, {})
    names = set(re.findall(r"@([\w.]+)", linker.text(module, locations=False)))
    assert names == {"main", "one.0", "one.0.helper", "two.0", "two.0.helper"}
    assert run(module, X)[0].tolist() == ((X + X) * (X + X)).tolist()


def _body(op: str) -> str:
    kind = "tensor<2x3xf32>"
    return f"""module {{
      func.func public @main(%0: {kind}) -> {kind} {{
        %1 = call @helper(%0) : ({kind}) -> {kind}
        return %1 : {kind}
      }}
      func.func private @helper(%0: {kind}) -> {kind} {{
        %1 = {op} %0, %0 : {kind} loc(#loc)
        return %1 : {kind}
      }}
    }}
    #loc = loc(unknown)"""


def run(module: Any, *inputs: Tensor) -> list[Tensor]:
    device = pjrt.device("cpu")
    signature = [((2, 3), np.dtype("float32"))]
    executable = pjrt.compile(module, device, signature * len(inputs), signature, {})
    return transfers.to_tensors(
        executable(*(transfers.to_array(x, device) for x in inputs)), device, True
    )


def test_convolutions_have_a_precision_of_their_own() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.conv1d(x.view(1, 2, 3), x.view(2, 1, 3), groups=2).view(1, 2) @ x

    text = linker.text(linked(function, X, convolutions="DEFAULT"), locations=False)
    lines = {line.split()[2].split("(")[0]: line for line in text.splitlines() if " = " in line}
    assert "precision DEFAULT" in lines["stablehlo.convolution"]
    assert "precision = [HIGHEST" in lines["stablehlo.dot_general"]


@pytest.mark.parametrize("precision", ["DEFAULT", "HIGH", "HIGHEST"])
def test_precision_is_that_of_float32_products_alone(precision: str) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x @ x.t(), y @ y.t()

    text = linker.text(linked(function, X, X.double(), precision=precision), locations=False)
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert ["f32" in line for line in products] == [
        f"precision = [{precision}" in p for p in products
    ]
    assert len(products) == 2


def test_integers_are_multiplied_by_floats_as_floats() -> None:
    text = """module {
      func.func public @main(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
        %1 = stablehlo.iota dim = 0 : tensor<3x3xi64>
        %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
            : (tensor<2x3xf32>, tensor<3x3xi64>) -> tensor<2x3xf32> loc(#loc)
        return %2 : tensor<2x3xf32>
      }
    }
    #loc = loc(unknown)"""
    graph = traced(lambda x: x.flip(0), X).graph
    (flip,) = fx.calls(graph)
    module = importer.import_graph(graph, {flip: "f"})
    artifact = importer.to_stablehlo(module, linker.stablehlo_version())
    linked = linker.link(artifact, {"f": (Body("f", text), Location("f"))}, HIGHEST, {})
    (product,) = (t for t in linker.text(linked, locations=False).splitlines() if "dot_gen" in t)
    assert "(tensor<2x3xf32>, tensor<3x3xf32>)" in product
    expected = X @ torch.arange(3.0)[:, None].expand(3, 3)
    assert run(linked, X)[0].tolist() == expected.tolist()


def test_donated_arguments_are_marked() -> None:
    module = linked(lambda x, y: (x + y, x * y), X, X * 2, aliases={1: 0})
    (line,) = [t for t in linker.text(module, locations=False).splitlines() if "@main" in t]
    assert "%arg1: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}" in line
    assert line.count("tf.aliasing_output") == 1


def test_running_sums_begin_with_what_xla_does_not_see_through() -> None:
    text = linker.text(linked(lambda x: x.cumsum(1), X, called="aten.cumsum.default"))
    windows = text.count("stablehlo.reduce_window")
    assert text.count("stablehlo.optimization_barrier") >= windows


def test_other_dialects_are_refused_with_the_place() -> None:
    graph = traced(lambda x: x.flip(0), X).graph
    (flip,) = fx.calls(graph)
    artifact = importer.to_stablehlo(
        importer.import_graph(graph, {flip: "f"}), linker.stablehlo_version()
    )
    body = Body("f", _body("arith.addf"))
    located = body, Location("aten.flip.default", "a.py", 3)
    with pytest.raises(CompileError, match=r"arith.addf is left in the program.*a\.py.:3"):
        linker.link(artifact, {"f": located}, HIGHEST, {})


def test_an_artifact_that_jaxlib_cannot_read_is_the_installations_fault() -> None:
    with pytest.raises(InstallationError, match="jaxlib cannot read torch-mlir's StableHLO"):
        linker.link(b"of a later version", {}, HIGHEST, {})
