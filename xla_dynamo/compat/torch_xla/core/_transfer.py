"""Move the tensors inside nested containers to the CPU, to a device, or into files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.recording import devices

from ..utils.nested import for_each_instance, for_each_instance_rewrite

Select = Callable[[Any], bool]
Convert = Callable[[list[Any]], Sequence[Any]]


class ToXlaTensorArena:
    """Replaces what `select_fn` accepts in nested lists, tuples, sets and dicts.

    One call of `convert_fn` converts all of it: it takes a list and returns one of equal length.
    """

    def __init__(self, convert_fn: Convert, select_fn: Select) -> None:
        self._convert = convert_fn
        self._select = select_fn

    def transform(self, inputs: Any) -> Any:
        """A copy of `inputs` with converted tensors; what is shared inside it stays shared."""
        found: list[Any] = []
        for_each_instance(inputs, self._select, found.append, objects=False)
        converted = iter(self._convert(found) if found else [])
        return for_each_instance_rewrite(
            inputs, self._select, lambda _: next(converted), objects=False
        )


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
        if input_sharding is not None and input_sharding.takes_parts:
            return [input_sharding.joined(t).requires_grad_(t.requires_grad) for t in tensors]
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
