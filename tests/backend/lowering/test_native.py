"""Every op in `native.NATIVE` through torch-mlir alone, against eager, for each dtype claimed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph
from torch.utils import _pytree as pytree

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.lower import lower_graph
from xla_dynamo.backend.lowering.native import NATIVE, is_native
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.runtime import pjrt, transfers

aten = torch.ops.aten
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int32,
    torch.int64,
    torch.bool,
)
Make = Callable[..., torch.Tensor]
Calls = list[tuple[Any, ...]]


def _binary(t: Make) -> Calls:
    return [
        (t(3, 4), t(3, 4)),
        (t(3, 4), t(4)),
        (t(3, 1), t(1, 4)),
        (t(), t(2, 3)),
        (t(), t()),
        (t(0, 3), t(3)),
    ]


def _unary(t: Make) -> Calls:
    return [(t(3, 4),), (t(),), (t(2, 0),), (t(5),)]


def _reductions(t: Make) -> Calls:
    return [(t(3, 4), [0]), (t(3, 4), [-1], True), (t(2, 3, 4), [0, 2]), (t(), [0])]


def _mask(*shape: int) -> torch.Tensor:
    return torch.rand(shape) > 0.5


CALLS: dict[Any, Callable[[Make], Calls]] = {
    **dict.fromkeys(
        (aten.neg.default, aten.tanh.default, aten.sigmoid.default, aten.sin.default), _unary
    ),
    **dict.fromkeys((aten.cos.default, aten.exp.default), _unary),
    **dict.fromkeys((aten.log.default, aten.sqrt.default, aten.rsqrt.default), _unary),
    **dict.fromkeys((aten.abs.default, aten.floor.default, aten.ceil.default), _unary),
    **dict.fromkeys((aten.reciprocal.default, aten.logical_not.default), _unary),
    **dict.fromkeys((aten.log1p.default, aten.expm1.default, aten.isnan.default), _unary),
    **dict.fromkeys((aten.maximum.default, aten.minimum.default), _binary),
    **dict.fromkeys(
        (aten.logical_and.default, aten.logical_or.default, aten.bitwise_and.Tensor), _binary
    ),
    aten.where.self: lambda t: [
        (_mask(3, 4), t(3, 4), t(3, 4)),
        (_mask(3, 1), t(4), t()),
        (_mask(), t(2), t(2)),
    ],
    aten.cat.default: lambda t: [([t(2, 3), t(1, 3)], 0), ([t(2, 3), t(2, 0), t(2, 1)], -1)],
    aten.slice.Tensor: lambda t: [
        (t(5, 4), 0, 1, 4),
        (t(5, 4), 1, 0, 4, 2),
        (t(5, 4), 0, -3, 9223372036854775807),
        (t(5, 4), -1, 2, 100),
        (t(5), 0, 3, 2),
    ],
    aten.select.int: lambda t: [(t(3, 4), 0, 1), (t(3, 4), -1, -2), (t(3), 0, 2)],
    aten.sum.dim_IntList: lambda t: [*_reductions(t), (t(0, 3), [0])],
    **dict.fromkeys((aten.amax.default, aten.amin.default), lambda t: _reductions(t)),
    aten.addmm.default: lambda t: [(t(5), t(3, 4), t(4, 5)), (t(3, 5), t(3, 4), t(4, 5))],
    aten.squeeze.dim: lambda t: [(t(1, 3, 1), 0), (t(1, 3, 1), 1), (t(3, 1), -1)],
    aten.constant_pad_nd.default: lambda t: [
        (t(3, 4), [1, 2]),
        (t(3, 4), [1, 0, 0, 2], 1.0),
        (t(3, 4), [-1, 0]),
    ],
    aten.flip.default: lambda t: [(t(3, 4), [0]), (t(3, 4), [0, -1])],
    aten.clamp.default: lambda t: [(t(3, 4), -1.0, 1.0), (t(3, 4), 0), (t(3, 4), None, 2)],
    **dict.fromkeys(
        (aten._softmax.default, aten._log_softmax.default),
        lambda t: [(t(3, 4), 1, False), (t(2, 3, 4), 0, False), (t(), 0, False)],
    ),
    **dict.fromkeys((aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor), _binary),
    aten.div.Tensor: _binary,
    **dict.fromkeys(
        (
            aten.eq.Tensor,
            aten.ne.Tensor,
            aten.lt.Tensor,
            aten.le.Tensor,
            aten.gt.Tensor,
            aten.ge.Tensor,
        ),
        lambda t: [*_binary(t), (torch.ones_like(t(3)), torch.ones_like(t(3)))],
    ),
    aten.mm.default: lambda t: [(t(3, 4), t(4, 5)), (t(1, 1), t(1, 1))],
    aten.bmm.default: lambda t: [(t(2, 3, 4), t(2, 4, 5)), (t(1, 1, 2), t(1, 2, 1))],
    aten.view.default: lambda t: [
        (t(3, 4), [12]),
        (t(3, 4), [2, -1]),
        (t(), [1, 1]),
        (t(0, 3), [0]),
        (t(2, 3, 4), [2, 12]),
        (t(1), []),
    ],
    aten.permute.default: lambda t: [(t(2, 3, 4), [2, 0, 1]), (t(2, 3), [-1, 0]), (t(), [])],
    aten.unsqueeze.default: lambda t: [(t(2, 3), 0), (t(2, 3), -1), (t(), 0)],
    aten.expand.default: lambda t: [(t(1, 3), [4, 3]), (t(3), [2, -1]), (t(), [2, 2])],
    aten.clone.default: _unary,
}


def _values(dtype: torch.dtype) -> Make:
    def make(*shape: int) -> torch.Tensor:
        if dtype is torch.bool:
            return torch.rand(shape) > 0.5
        if not dtype.is_floating_point:
            return torch.randint(-5, 6, shape, dtype=dtype)
        values = torch.randn(shape, dtype=torch.float64)
        if values.numel() > 4:
            values.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        return values.to(dtype)

    return make


def _graph(op: Any, dtype: torch.dtype) -> tuple[Graph, list[torch.Tensor], list[torch.Tensor]]:
    """One graph with all calls of `op` that are native, their arguments and eager's results."""
    graph, mode = Graph(), FakeTensorMode()
    arguments: list[torch.Tensor] = []
    expected: list[torch.Tensor] = []
    outputs = []
    for call in CALLS[op](_values(dtype)):
        try:
            result = op(*call)
        except RuntimeError:
            continue  # eager has no such kernel (negation of bool)
        leaves, spec = pytree.tree_flatten(call)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                leaves[i] = graph.placeholder(f"argument_{len(arguments)}")
                leaves[i].meta["val"] = mode.from_tensor(leaf)
                arguments.append(leaf)
        node = graph.call_function(op, pytree.tree_unflatten(leaves, spec))
        node.meta["val"] = mode.from_tensor(result.contiguous())
        if is_native(node):
            outputs.append(node)
            expected.append(result.contiguous())
        else:
            graph.erase_node(node)
    graph.output(tuple(outputs))
    return graph, arguments, expected


def test_every_native_op_has_calls() -> None:
    assert set(CALLS) == set(NATIVE)


@pytest.mark.parametrize("op", NATIVE, ids=str)
def test_torch_mlir_is_right(op: Any) -> None:
    claimed = 0
    for dtype in DTYPES:
        graph, arguments, expected = _graph(op, dtype)
        if not expected:
            continue
        claimed += 1
        device = pjrt.device("cpu")
        module = lower_graph(graph, Target("cpu")).module
        signature = [(tuple(t.shape), dtypes.to_numpy(t.dtype)) for t in arguments]
        results = [(tuple(t.shape), dtypes.to_numpy(t.dtype)) for t in expected]
        executable = pjrt.compile(module, device, signature, results, {})
        arrays = [transfers.to_array(t.contiguous(), device) for t in arguments]
        for got, want in zip(
            transfers.to_tensors(executable(*arrays), device, True), expected, strict=True
        ):
            torch.testing.assert_close(got, want, equal_nan=True)
    assert claimed, f"{op} is listed, but no dtype of it is claimed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "sub", "div", "maximum"])
def test_a_tensor_with_itself(name: str, dtype: torch.dtype) -> None:
    """What torch-mlir folds where both operands are one, must hold for nan and infinities."""
    x = torch.tensor([float("nan"), float("inf"), -0.0, 0.0, 2.0], dtype=dtype)
    op = getattr(torch, name)
    compiled = torch.compile(lambda x: op(x, x), backend="xla")
    torch.testing.assert_close(compiled(x), op(x, x), equal_nan=True, rtol=0, atol=0)
