"""Outputs that forward saves for backward stay on a device that has memory of its own.

The user does not see them, so no call downloads them: see `runtime.on_device`. An argument that is
saved is the array that was uploaded for the call. What else was uploaded for it is its own, and may
become a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from xla_dynamo.backend.runtime import on_device, pjrt, transfers

from .output_plan import Output
from .request import Request


@dataclass(frozen=True)
class Stays:
    """A saved output: the position of its array among results or arguments."""

    is_result: bool
    position: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Returned:
    """What a call makes of arrays: tensors of those at `fetched`, then those that stay."""

    fetched: tuple[int, ...]
    stays: tuple[Stays, ...]

    def given_up(
        self, placeholders: Sequence[Node], used: Sequence[int], request: Request
    ) -> list[int]:
        """The program's arguments whose arrays are this call's alone: copies of its CPU tensors.

        Not what comes again, and not what is saved: of a backward, only gradients are uploaded.
        """
        staying = {each.position for each in self.stays if not each.is_result}
        is_backward = request.no_output_aliasing
        return [
            place
            for place, (node, position) in enumerate(zip(placeholders, used, strict=True))
            if position not in request.resident
            and place not in staying
            and isinstance(node.meta["val"], torch.Tensor)
            and (node.name.startswith("tangents") or not is_backward)
        ]

    def tensors(
        self, arguments: Sequence[Any], results: Sequence[Any], device: pjrt.Device
    ) -> list[torch.Tensor]:
        """The tensors that `Output.result` of a chosen plan takes."""
        if not self.fetched:
            transfers.wait(results)  # the caller may write to what is being uploaded
        made = transfers.to_tensors([results[i] for i in self.fetched], device, host=True)
        for each in self.stays:
            array = (results if each.is_result else arguments)[each.position]
            made.append(on_device.keep(array, device, each.dtype))
        return made


def choose(
    planned: Sequence[Output],
    visible: int,
    results: Sequence[Node],
    placeholders: Sequence[Node],
    given: Mapping[int | None, int],
) -> tuple[list[Output], Returned]:
    """A plan whose saved outputs stay, and how its tensors are made.

    results, placeholders: of the program. given: which of its placeholders may stay, by positions
    in a call's arguments.
    """
    fetched = sorted({o.array for o in planned[:visible] if o.array is not None})
    where = {array: i for i, array in enumerate(fetched)}
    stays: list[Stays] = []
    chosen: list[Output] = []
    for index, output in enumerate(planned):
        if index < visible:
            array = None if output.array is None else where[output.array]
            chosen.append(replace(output, array=array))
            continue
        if output.array is not None:
            dtype = results[output.array].meta["val"].dtype
            stays.append(Stays(True, output.array, dtype))
        elif (position := given.get(output.argument)) is not None and not output.view_ops:
            dtype = placeholders[position].meta["val"].dtype
            stays.append(Stays(False, position, dtype))
        else:
            chosen.append(output)
            continue
        chosen.append(Output(array=len(fetched) + len(stays) - 1))
    return chosen, Returned(tuple(fetched), tuple(stays))
