"""Tensors that live on an XLA device, as arguments and results of compiled graphs.

A torch CPU tensor becomes an argument through DLPack. A tensor of device type "xla" already is a
device array; the package that makes such tensors registers here how to launch on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """How programs are made for tensors of one device type, and launched on them.

    device: the PJRT device of a torch device.
    compiled: calls a function that compiles for that device, and counts what it gives.
    launch: runs a program on tensors of that device, or of the CPU; new tensors, on that device.
        Arguments (the mapping's keys) give their memory to results (its values), which the caller
        then copies into them.
    replicas: how many replicas train together, of which that device is one.
    of_replicas: what runs the graph of that device's replica on its arrays, together with the
        others. It is given the graph's collectives, and all of the graph, as text, what compiles it
        for the devices of all replicas, and how many results take over the memory of an argument.
    """

    device: Callable[[torch.device], pjrt.Device]
    compiled: Callable[[Callable[[], pjrt.Executable], torch.device], pjrt.Executable]
    launch: Callable[
        [pjrt.Executable, Sequence[torch.Tensor], torch.device, Mapping[int, int]],
        Sequence[torch.Tensor],
    ]
    replicas: Callable[[torch.device], int]
    of_replicas: Callable[[torch.device, Sequence[str], str, Callable[..., Any], int], Any]


RESIDENCIES: dict[str, Residency] = {}


def device_of(values: Iterable[Any]) -> torch.device | None:
    """The device of the first value that lives on a registered device type, if any does."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type in RESIDENCIES:
            return value.device
    return None
