"""One program over four devices, partitioned by the shardings of its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import xla_dynamo
from tests.backend.graphs import traced
from xla_dynamo.backend import options
from xla_dynamo.backend.executable import partitioned
from xla_dynamo.backend.executable.compile import compile_executable
from xla_dynamo.backend.executable.device_launch import compile_arrays
from xla_dynamo.backend.executable.request import Request
from xla_dynamo.backend.jax_adapter import cpu_client
from xla_dynamo.backend.ops.sharding import MARK
from xla_dynamo.backend.passes.contract import WayIn
from xla_dynamo.backend.runtime import partitions, transfers
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.shardings import Grid, Sharding
from xla_dynamo.errors import CompileError, UnsupportedOp

GRID = Grid((2, 2), ("data", "model"), (0, 1, 2, 3))
DEVICES = tuple(cpu_client(asynchronous=True, devices=4).local_devices())
COLLECTIVE = re.compile(r"= (?:\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all)\(")


def split(*dims: int | None) -> Sharding:
    return Sharding(GRID, tuple(() if dim is None else (dim,) for dim in dims))


def request() -> Request:
    return Request("test", "", frozenset(), 0, options.parse({}, None), WayIn.LAZY)


def run(
    function: Callable[..., Any], tensors: list[torch.Tensor], inputs: list[Sharding], **how: Any
) -> tuple[list[torch.Tensor], list[Sharding | None], str]:
    """Results, how they are split, and the program of one device."""
    on = Partitions(DEVICES, tuple(inputs), how.pop("outputs", ()))
    graph = traced(function, *tensors).graph
    donated = how.pop("donated", ())
    with xla_dynamo.capture() as stages:
        program = compile_arrays(graph, request(), on, donated, lambda op: None)
    arrays = [transfers.upload(t, on, s) for t, s in zip(tensors, inputs, strict=True)]
    expected = function(*tensors)
    results: Any = program(*arrays)  # type: ignore[operator]
    for i in donated:
        assert arrays[i].is_deleted()
    found = [transfers.download(r, e.shape) for r, e in zip(results, expected, strict=True)]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    return found, [partitions.sharding_of(r) for r in results], stages[0].hlo


def step(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> Any:
    hidden = torch.tanh(x @ w)
    error = hidden @ v - x
    return (error * error).mean(), w - 0.1 * (x.T @ hidden), v - 0.1 * (hidden.T @ error)


def wide(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_a_step_over_data_and_model() -> None:
    """Parameters stay in parts, before and after; gradients are reduced over "data"."""
    tensors = [wide(8, 12), wide(12, 24), wide(24, 12)]
    inputs = [split(0, None), split(None, 1), split(1, None)]
    _, found, hlo = run(step, tensors, inputs, donated=(1, 2))
    assert found[1:] == inputs[1:]
    assert found[0] is not None
    assert found[0].is_replicated
    assert not re.search(r"f64\[12,24\]|f64\[24,12\]", hlo)
    assert set(COLLECTIVE.findall(hlo)) == {"all-reduce"}


def test_sizes_that_do_not_divide() -> None:
    """Padding is no number of the tensor's: not in a sum, not in a maximum, nor in a product."""

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return x.sum(0), x.amax(), x @ w, x * 2 - 1

    x = Sharding(GRID, ((0, 1), ()))
    _, found, _ = run(
        function,
        [wide(5, 3) - 9, wide(3, 7)],
        [x, split(None, 1)],
        donated=(0,),
        outputs=(None, None, split(0, 1), None),
    )
    assert found[3] == x
    assert found[2] == split(0, 1)


def test_marks_inside_and_two_meshes() -> None:
    row = Sharding(Grid((4,), ("row",), (3, 1, 2, 0)), ((0,), ()))

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return MARK((x @ w).relu(), split(0, 1).attribute()).cumsum(1), x + w

    _, found, _ = run(function, [wide(4, 4), wide(4, 4)], [row, split(None, 1)])
    assert found[0] is not None


def test_sorts_scans_and_gathers() -> None:
    """What XLA cannot split it gathers first."""

    def function(x: torch.Tensor, i: torch.Tensor) -> Any:
        return torch.sort(x, 0)[0], x[i], torch.logcumsumexp(x, 1), torch.topk(x, 2)[0]

    run(function, [wide(6, 4), torch.tensor([3, 0, 5, 5])], [split(0, 1), split(None)])


def test_programs_by_the_shardings_of_arguments() -> None:
    graph = traced(lambda x: (x + 1,), wide(4, 4)).graph
    compiles = []

    def compile(graph: Any, on: Partitions) -> Any:
        compiles.append(on.inputs)
        return compile_executable(graph, request(), on)

    program = partitioned.ByShardings(graph, Partitions(DEVICES), compile)
    x = wide(4, 4)
    for sharding in (split(0, None), split(None, 1), split(0, None)):
        (result,) = program(transfers.upload(x, Partitions(DEVICES), sharding))
        assert torch.equal(transfers.download(result), x + 1)
    assert compiles == [(split(0, None),), (split(None, 1),)]


def test_an_updated_argument_gives_its_memory_however_it_is_split() -> None:
    graph = traced(lambda x, y: (x.sum(), x + y), wide(5, 4), wide(5, 4)).graph
    compile = partial(compile_executable, request=request(), aliases={0: 1})
    program = partitioned.ByShardings(
        graph, Partitions(DEVICES), lambda g, on: compile(g, device=on), {0: 1}
    )
    x, y = wide(5, 4), wide(5, 4)
    for sharding in (split(0, None), split(None, 1)):
        with xla_dynamo.capture() as stages:
            given = [transfers.upload(t, Partitions(DEVICES), sharding) for t in (x, y)]
            _, result = program(*given)
        assert "input_output_alias={ {1}: (0, {}, may-alias) }" in stages[0].hlo
        assert partitions.sharding_of(result) == sharding
        assert torch.equal(transfers.download(result, (5, 4)), x + y)
        assert [array.is_deleted() for array in given] == [True, False]
    assert program.aliases == 1


def test_what_runs_on_the_cpu_takes_no_padded_argument() -> None:
    graph = traced(lambda x: (x + 1,), wide(5, 4)).graph
    add = next(node for node in graph.nodes if node.op == "call_function")
    on = Partitions(DEVICES, (split(0, None),))
    with pytest.raises(UnsupportedOp, match="splits into unequal parts"):
        partitioned.refuse_padding(graph, on, [add])


def test_an_executable_that_splits_otherwise_is_refused() -> None:
    graph = traced(lambda x: (x + 1,), wide(4, 4)).graph
    on = partitioned.with_results(graph, Partitions(DEVICES, (split(0, None),)), {0: 0})
    program = compile_executable(graph, request(), on)
    other = Partitions(DEVICES, (split(None, 0),), on.outputs)
    with pytest.raises(CompileError, match="does not split argument 0"):
        partitions.chosen(program.loaded, other, [2])


def test_a_parameter_that_is_split_to_save_memory() -> None:
    """It is gathered where it is computed with; the batch, and the update, stay split."""
    x, w = torch.randn(8, 16).double(), torch.randn(16, 4).double()
    batch = Sharding(GRID, ((0, 1), ()), "batch")
    parameter = Sharding(GRID, ((0, 1), ()), "parameter")

    def trained(x: torch.Tensor, w: torch.Tensor) -> Any:
        gradient = x.t() @ torch.tanh(x @ w)
        return w - 0.1 * gradient, (x @ w).sum()

    _, kept, hlo = run(trained, [x, w], [batch, parameter], donated=(1,))
    assert kept[0] == parameter
    assert sorted(set(COLLECTIVE.findall(hlo))) == ["all-gather", "all-reduce"]
    assert "f64[8,16]" not in hlo
