"""Calls of PyTorch's kernels, as text and back."""

from __future__ import annotations

import torch

from xla_dynamo.backend.graph import kernel_calls

aten = torch.ops.aten


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def test_a_call_goes_through_text() -> None:
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    arguments = (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    text = kernel_calls.encode(aten.convolution.default, arguments, _is_tensor)
    made = kernel_calls.decoded(text.encode())([x, weight])
    assert torch.equal(made, aten.convolution.default(*arguments))


def test_an_op_is_named() -> None:
    text = kernel_calls.encode(aten.convolution.default, (), _is_tensor)
    assert kernel_calls.op_name(text.encode()) == "aten.convolution.default"
