"""A launch, on device arrays, of a program whose sizes are those of buckets.

As `padded_call`, for the lazy device: arrays have no strides, and a result keeps its padding until
somebody uses it, so that a launch does not wait for the program to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.passes.padding.plan import PaddedGraph
from xla_dynamo.backend.passes.padding.sizes import Numbers
from xla_dynamo.backend.runtime import pjrt, transfers

from .device_padding import DevicePadding
from .padded_call import numbers_of
from .padded_layout import Layout

Run = Callable[[list[Any]], Sequence[Any]]
_ARRAY = torch.device("cpu")  # of arrays, programs know the device


@dataclass(frozen=True)
class Cut:
    """How a result is made of a padded array."""

    layout: Layout
    device: pjrt.Device
    there: DevicePadding | None

    def host(self, array: Any) -> torch.Tensor:
        """What the array holds, once it is computed."""
        (padded,) = transfers.to_tensors([array], self.device, host=True)
        return self.layout.cut(padded, self.layout.strides)

    def array(self, array: Any) -> Any | None:
        """The same as an array, without waiting; None if it has to go through the host."""
        if self.there is None:
            return None
        cut = self.there.cutting(self.layout, dtypes.to_torch(array.dtype), _ARRAY)
        return None if cut is None else cut([array])[0]


class PaddedLaunch:
    """Runs a padded program for one combination of sizes.

    there: pads on a device with memory of its own.
    cuts: by position, how a result is made that has padding.
    """

    def __init__(
        self,
        run: Run,
        graph: PaddedGraph,
        real: Numbers,
        device: pjrt.Device,
        there: DevicePadding | None = None,
    ) -> None:
        self._run, self._device, self._there = run, device, there
        buckets = graph.plan.buckets
        layouts = {
            position: Layout(dims, real, buckets)
            for position, dims in enumerate(graph.arguments)
            if dims is not None and any(dim.is_padded for dim in dims)
        }
        self._padded = [(i, of) for i, of in layouts.items() if of.short]
        self._missing = len(graph.names)
        self._numbers = [transfers.upload(each, device) for each in numbers_of(graph, real)]
        results = {
            position: Layout(result.dims, real, buckets)
            for position, result in enumerate(graph.results)
            if result.dims is not None and any(dim.is_padded for dim in result.dims)
        }
        self.cuts = {i: Cut(of, device, there) for i, of in results.items() if of.short}

    def __call__(self, arrays: list[Any]) -> Sequence[Any]:
        for position, layout in self._padded:
            arrays[position] = self._pad(arrays[position], layout)
        arrays.extend([None] * (self._missing - len(arrays)))  # integers, which it does not take
        return self._run([*arrays, *self._numbers])

    def _pad(self, array: Any, layout: Layout) -> Any:
        if self._there is not None:
            pad = self._there.padding(layout, dtypes.to_torch(array.dtype), _ARRAY)
            if pad is not None:
                return pad([array])[0]
        (host,) = transfers.to_tensors([array], self._device, host=True)
        return transfers.to_array(layout.pad(host), self._device)
