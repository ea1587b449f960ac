"""A launch, on device arrays, of a program whose sizes are those of buckets.

As `padded_call`, for the lazy device: arrays have no strides, and a result keeps its padding until
somebody uses it, so that a launch does not wait for the program to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.plan import PaddedGraph
from xla_dynamo.backend.passes.padding.sizes import Numbers
from xla_dynamo.backend.runtime import pjrt, transfers

from .padded_call import Layout, numbers_of

Run = Callable[[list[Any]], Sequence[Any]]


class PaddedLaunch:
    """Runs a padded program for one combination of sizes.

    cuts: by position, where the elements of a result are that has padding.
    """

    def __init__(self, run: Run, graph: PaddedGraph, real: Numbers, device: pjrt.Device) -> None:
        self._run, self._device = run, device
        buckets = graph.plan.buckets
        layouts = {
            position: Layout(dims, real, buckets)
            for position, dims in enumerate(graph.arguments)
            if dims is not None and any(dim.is_padded for dim in dims)
        }
        self._padded = [(i, of) for i, of in layouts.items() if of.shape != of.padded]
        self._missing = len(graph.names)
        self._numbers = [transfers.upload(each, device) for each in numbers_of(graph, real)]
        results = {
            position: Layout(result.dims, real, buckets)
            for position, result in enumerate(graph.results)
            if result.dims is not None and any(dim.is_padded for dim in result.dims)
        }
        self.cuts = {i: layout for i, layout in results.items() if layout.shape != layout.padded}

    def __call__(self, arrays: list[Any]) -> Sequence[Any]:
        for position, layout in self._padded:
            arrays[position] = self._pad(arrays[position], layout)
        arrays.extend([None] * (self._missing - len(arrays)))  # integers, which it does not take
        return self._run([*arrays, *self._numbers])

    def _pad(self, array: Any, layout: Layout) -> Any:
        (host,) = transfers.to_tensors([array], self._device, host=True)
        return transfers.to_array(layout.pad(host), self._device)


def cut(array: Any, layout: Layout) -> torch.Tensor:
    """What a padded array holds, once it is computed."""
    return layout.cut(transfers.download(array), layout.strides)
