"""Calls of PyTorch's CPU kernels as text: what a program of XLA:CPU holds of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch

TARGET = "xla_dynamo_torch_kernel"  # the name by which XLA knows them
_TENSOR = "tensor"  # in a call: {"tensor": position among the arguments}

STORE = "xla_dynamo_store"  # writes of values to addresses: see ops.stores

# Of a kernel that fails.
REMEDY = 'options={"cpu_kernels": "xla"} or XLA_DYNAMO_CPU_KERNELS=xla compiles it with XLA.'

Kernel = Callable[[Sequence[torch.Tensor]], Any]


def encode(op: Any, arguments: Sequence[Any], is_tensor: Callable[[Any], bool]) -> str:
    """A call of an op of aten: its name and arguments, tensors by their order."""
    tensors = iter(range(len(arguments)))
    filled = [{_TENSOR: next(tensors)} if is_tensor(value) else value for value in arguments]
    return json.dumps([str(op).removeprefix("aten."), filled])


@functools.lru_cache(maxsize=4096)
def decoded(call: bytes) -> Kernel:
    name, arguments = json.loads(call)
    op = attrgetter(name)(torch.ops.aten)
    places = [
        (place, value[_TENSOR]) for place, value in enumerate(arguments) if isinstance(value, dict)
    ]

    def run(tensors: Sequence[torch.Tensor]) -> Any:
        filled = list(arguments)
        for place, number in places:
            filled[place] = tensors[number]
        return op(*filled)

    return run


def encode_store(first: int, count: int) -> str:
    """A call that writes its first `count` arguments to addresses, from number `first` on."""
    return json.dumps([first, count])


def decoded_store(call: bytes) -> tuple[int, int]:
    first, count = json.loads(call)
    return first, count


def op_name(call: bytes) -> str:
    """Such as "aten.convolution.default"."""
    return f"aten.{json.loads(call)[0]}"
