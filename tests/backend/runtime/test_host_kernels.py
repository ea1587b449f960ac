"""PyTorch's kernels, on XLA's arguments and results."""

from __future__ import annotations

import torch

from xla_dynamo.backend.graph import kernel_calls
from xla_dynamo.backend.runtime import host_kernels

aten = torch.ops.aten


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def test_results_that_are_masked_are_left_out() -> None:
    x, weight, grad = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(2, 4, 6, 6)
    mask = [False, True, True]
    arguments = (grad, x, weight, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask)
    text = kernel_calls.encode(aten.convolution_backward.default, arguments, _is_tensor)
    results = [torch.empty(4, 3, 3, 3), torch.empty(4)]
    host_kernels._work(text.encode(), [grad, x, weight], results)
    _, *wanted = aten.convolution_backward.default(*arguments)
    torch.testing.assert_close(results, wanted)
