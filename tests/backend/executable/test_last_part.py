"""Updates come after all kernels; what would keep larger values until then does not."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from xla_dynamo.backend.executable import last_part
from xla_dynamo.backend.graph import fx

aten = torch.ops.aten


def _step(x: Tensor, w: Tensor, v: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    y = aten.convolution(x, v, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    z = aten.convolution(y * 2, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    new_v = v - scale * v.sin()
    return y.sum((0, 2, 3)), new_v, z.relu().sum(), w.cos()


def test_what_comes_last() -> None:
    x, w, v = torch.ones(2, 3, 9, 9), torch.ones(4, 8, 3, 3), torch.ones(8, 3, 3, 3)
    graph = make_fx(_step, tracing_mode="fake")(x, w, v, torch.ones(())).graph
    kernels = [n for n in fx.calls(graph) if n.target is aten.convolution.default]
    first, last = last_part.split_off(graph, kernels)
    names = [str(node.target).split(".")[1] for node in fx.calls(last.graph)]
    assert names == ["sin", "mul", "sub", "relu", "sum", "cos"]
    assert [node.name for node in last.inputs if node.op != "placeholder"] == ["convolution_1"]
    # A sum would keep what it sums.
    assert [node.name for node in first.outputs] == ["convolution_1", "sum_1"]
