"""Tensors that live on an XLA device, as arguments and results of compiled graphs.

A torch CPU tensor becomes an argument through DLPack. A tensor of device type "xla" already is a
device array; the package that makes such tensors registers here how to convert them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import pjrt
else:
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())


@dataclass(frozen=True)
class Residency:
    """How tensors of one device type are converted to device arrays and back.

    device: the PJRT device of a torch device.
    arrays: the arrays of tensors that are on that device, or on the CPU.
    tensors: new tensors of arrays, on a torch device.
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
