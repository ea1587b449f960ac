"""How a program of XLA:CPU is called on PyTorch's tensors, as data: a later process needs no graph.

Only of programs that are parts of a graph: see turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from xla_dynamo.backend.runtime import buffers, pjrt, transfers

from . import cores
from .input_layout import Order
from .output_plan import Output

Run = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True)
class HostLaunch:
    """What a call gives a program, and what it makes of the results.

    used: which of the call's arguments the program takes.
    resident: which arguments are tensors that come again at every call.
    orders: the order in memory of those that are not row-major, by place in `used`.
    planned: how the call's results are made.
    elements: of all results in the program: see cores.
    """

    used: tuple[int, ...] = ()
    resident: tuple[int, ...] = ()
    orders: Mapping[int, Order] = field(default_factory=dict)
    planned: tuple[Output, ...] = ()
    elements: int = 0


class Launched:
    """A program, called so.

    program: None where all results are arguments, or constants.
    """

    def __init__(
        self, launch: HostLaunch, program: pjrt.Executable | None, device: pjrt.Device
    ) -> None:
        self.launch, self.program = launch, program
        self.run = planned(launch.planned, lambda given: ())
        if program is not None:
            slots = buffers.slots(device, launch.used, launch.resident, (), launch.orders)
            run = on_tensors(cores.alone(program, launch.elements), slots)
            self.run = planned(launch.planned, run)

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        return self.run(arguments)


def on_tensors(program: Callable[..., Any], slots: Sequence[buffers.Slot]) -> Run:
    """Run a program that is done when its launch returns; its results as tensors."""
    return lambda given: transfers.computed(program(*buffers.arrays(slots, given)))


def planned(outputs: Sequence[Output], run: Callable[[list[Any]], Sequence[torch.Tensor]]) -> Run:
    """The call path. The common case, all results distinct arrays in order, needs no assembly."""
    arrays = [output.array for output in outputs]
    is_plain = arrays == list(range(len(arrays))) and not any(o.view or o.view_ops for o in outputs)
    if is_plain:
        return run

    def launch(arguments: list[Any]) -> list[Any]:
        tensors = run(arguments)
        return [output.result(arguments, tensors) for output in outputs]

    return launch
