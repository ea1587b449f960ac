"""Tensors inside nested containers: to the CPU, to the device, into files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.recording import devices

Select = Callable[[Any], bool]
Convert = Callable[[list[Any]], Sequence[Any]]


class ToXlaTensorArena:
    """Replaces what `select_fn` accepts in nested lists, tuples, sets and dicts.

    All of it is converted by one call of `convert_fn`: list in, list of the same length out.
    """

    def __init__(self, convert_fn: Convert, select_fn: Select) -> None:
        self._convert = convert_fn
        self._select = select_fn

    def transform(self, inputs: Any) -> Any:
        """A copy of `inputs` with converted tensors; what is shared inside it stays shared."""
        found: dict[int, Any] = {}
        self._collect(inputs, found)
        converted = self._convert(list(found.values())) if found else []
        return self._replace(inputs, dict(zip(found, converted, strict=True)))

    def _collect(self, value: Any, found: dict[int, Any]) -> None:
        if self._select(value):
            found[id(value)] = value
        elif isinstance(value, dict):
            for item in value.items():
                self._collect(item, found)
        elif isinstance(value, (list, tuple, set)):
            for item in value:
                self._collect(item, found)

    def _replace(self, value: Any, by: dict[int, Any]) -> Any:
        if id(value) in by:
            return by[id(value)]
        if isinstance(value, dict):
            made = copy.copy(value)  # keeps the type, and the `_metadata` of a state_dict
            made.clear()
            made.update({self._replace(k, by): self._replace(v, by) for k, v in value.items()})
            return made
        if isinstance(value, (list, tuple, set)):
            items = [self._replace(item, by) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on an xla device."""
    return tensor.device.type == "xla"


def to_cpu(data: Any, convert: bool = True) -> Any:
    """`data` with every xla tensor in it on the CPU; with convert=False, synced but not copied.

    Only exact torch.Tensors: an nn.Parameter stays where it is, as in torch_xla.
    """
    found: list[torch.Tensor] = []

    def move(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        found.extend(tensors)
        step_barrier.sync(tensors, wait=False)
        if not convert:
            return tensors
        return [t.detach().cpu().requires_grad_(t.requires_grad) for t in tensors]

    return ToXlaTensorArena(move, lambda v: type(v) is torch.Tensor and is_xla_tensor(v)).transform(
        data
    )


def to_device(datas: Any, device: devices.Named, input_sharding: Any = None) -> Any:
    """`datas` with every CPU tensor in it on `device`; a bare tensor comes back in a list."""
    target = torch.device("xla", devices.index_of(device))

    def move(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        moved = [t.detach().to(target).requires_grad_(t.requires_grad) for t in tensors]
        if input_sharding is not None:
            for tensor in moved:
                input_sharding.apply(tensor)
        return moved

    nested = [datas] if isinstance(datas, torch.Tensor) else datas
    return ToXlaTensorArena(
        move, lambda v: type(v) is torch.Tensor and v.device.type == "cpu"
    ).transform(nested)


def save(
    data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False
) -> None:
    """torch.save with every xla tensor as a CPU tensor; torch.load gives CPU tensors.

    This process is the only replica, and so the master: it always writes.
    """
    torch.save(to_cpu(data), file_or_path)
