"""Tensors that live on an XLA device, for compiled graphs: a table of who can open and make them.

A torch CPU tensor enters a program by DLPack. A tensor of device type "xla" already is a device
array; the package that makes such tensors registers here how to get at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import pjrt


@dataclass(frozen=True)
class Residency:
    """How tensors of one device type meet device arrays.

    device: torch device -> PJRT device.
    arrays: tensors (on that device, or on the CPU) -> arrays on the PJRT device.
    tensors: arrays and the torch device -> new tensors.
    """

    device: Callable[[torch.device], pjrt.Device]
    arrays: Callable[[Sequence[torch.Tensor], torch.device], list[pjrt.Array]]
    tensors: Callable[[Sequence[pjrt.Array], torch.device], list[torch.Tensor]]


RESIDENCIES: dict[str, Residency] = {}


def device_of(values: Iterable[Any]) -> torch.device | None:
    """The device of the first value that lives on a registered device type, if any does."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type in RESIDENCIES:
            return value.device
    return None
