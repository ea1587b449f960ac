"""A call of a program whose sizes are those of buckets: arguments are padded, results cut.

An argument is copied into memory of the bucket's size, and a result out of it. What depends on the
sizes of the call is worked out once for each combination of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import view_chain
from xla_dynamo.backend.passes.padding.plan import Agreement, PaddedGraph, Result
from xla_dynamo.backend.passes.padding.sizes import Numbers, evaluated
from xla_dynamo.errors import XlaDynamoError

from .device_padding import DevicePadding
from .padded_layout import Layout

Run = Callable[[list[Any]], Sequence[Any]]


class Saved:
    """What forward has saved, which it may have padded, as backward is given it.

    names: by position. real, buckets: what all symbols stand for. same: which are others.
    there: pads and cuts on a device with memory of its own.
    """

    def __init__(
        self,
        agreement: Agreement,
        names: Mapping[int, str],
        real: Numbers,
        buckets: Numbers,
        same: frozenset[tuple[Any, Any]],
        there: DevicePadding | None = None,
    ) -> None:
        self._agreement = agreement
        self.names, self.there = names, there
        self._real, self._buckets, self._same = real, buckets, same

    def without_padding(self, position: int, x: torch.Tensor) -> torch.Tensor:
        """An argument as it was before forward padded it."""
        found = self._agreement.saved.get(self.names.get(position, ""), {})
        layouts = [
            Layout(dims, self._real, self._buckets)
            for (exact, same), dims in found.items()
            if same == self._same and all(self._real.get(s, n) == n for s, n in exact)
        ]
        for layout in layouts:
            if layout.padded == x.shape and layout.shape != x.shape:
                return cut_by(self.there)(layout, x, layout.strides)
        if not layouts or any(layout.shape == x.shape for layout in layouts):
            return x
        raise XlaDynamoError(
            f"A saved value has the shape {tuple(x.shape)}, which nothing has given it. This is a "
            "bug of xla_dynamo: please report it, and use options={'bucket': None}."
        )

    def all_without_padding(self, arguments: Sequence[Any]) -> list[Any]:
        """All arguments."""
        return [
            self.without_padding(i, x) if i in self.names and isinstance(x, torch.Tensor) else x
            for i, x in enumerate(arguments)
        ]


def cut_by(there: DevicePadding | None) -> Callable[..., torch.Tensor]:
    """What cuts a tensor: with a layout and strides."""
    return Layout.cut if there is None else there.cut


class PaddedCall:
    """Runs a padded program for one combination of sizes."""

    def __init__(
        self, run: Run, graph: PaddedGraph, real: Numbers, visible: int, saved: Saved
    ) -> None:
        self._run, self._saved = run, saved
        self._pad = Layout.pad if saved.there is None else saved.there.pad
        buckets = graph.plan.buckets
        self._arguments = [
            (position, Layout(dims, real, buckets), graph.names[position] in graph.plan.layouts)
            for position, dims in enumerate(graph.arguments)
            if dims is not None and (position in saved.names or any(dim.is_padded for dim in dims))
        ]
        self._numbers = numbers_of(graph, real)
        if saved.there is not None and saved.there.home is not None:
            self._numbers = [each.to(saved.there.home) for each in self._numbers]
        self._results = [
            _maker(result, real, buckets, index < visible, saved)
            for index, result in enumerate(graph.results)
        ]
        self._originals = [r.argument for r in graph.results if r.argument is not None]
        self._views = [
            (index, result.result, _real_ops(result, real))
            for index, result in enumerate(graph.results)
            if result.result is not None
        ]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        originals = {position: arguments[position] for position in self._originals}
        for position, layout, may_be_padded in self._arguments:
            x = arguments[position]
            if x.shape != layout.shape:
                if may_be_padded and x.shape == layout.padded:
                    continue
                x = self._saved.without_padding(position, x)
            arguments[position] = self._pad(layout, x)
        arguments.extend(self._numbers)
        results = self._run(arguments)
        made = [make(x, originals) for make, x in zip(self._results, results, strict=True)]
        for index, of, ops in self._views:
            made[index] = view_chain.replay(made[of], ops).detach()
        return made


def numbers_of(graph: PaddedGraph, real: Numbers) -> list[torch.Tensor]:
    """What a padded program takes after its arguments, for the sizes of a call."""
    return [
        torch.tensor([evaluated(n, real) for n in numbers], dtype=dtype, device="cpu")
        for dtype, numbers in graph.numbers
    ]


def _of_argument(
    result: Result, real: Numbers, saved: Saved
) -> Callable[[Any, Mapping[int, Any]], Any]:
    """How a result is made that is an argument, or a view of one."""
    assert result.argument is not None
    position, ops = result.argument, _real_ops(result, real)
    shape = tuple(evaluated(dim.size, real) for dim in result.dims or ())

    def make(_: Any, originals: Mapping[int, Any]) -> Any:
        x = originals[position]
        if result.dims is not None and x.shape != shape:
            x = saved.without_padding(position, x)
        return view_chain.replay(x, ops)

    return make


def _maker(
    result: Result, real: Numbers, buckets: Numbers, is_visible: bool, saved: Saved
) -> Callable[[Any, Mapping[int, Any]], Any]:
    """How a result is made of what the program returns for it, and of arguments."""
    if result.argument is not None:
        return _of_argument(result, real, saved)
    if result.result is not None:
        return lambda _, __: None  # of another result, when that is there
    if result.dims is None:
        number = evaluated(result.number, real)
        return lambda _, __: number
    if not is_visible:
        return lambda x, _: x
    layout = Layout(result.dims, real, buckets)
    strides = tuple(evaluated(stride, real) for stride in result.strides)
    cut = cut_by(saved.there)
    return lambda x, _: cut(layout, x, strides)


def _real_ops(result: Result, real: Numbers) -> view_chain.ViewOps:
    """The view ops of a result for the sizes of a call."""
    return pytree.tree_map_only(sympy.Basic, lambda size: evaluated(size, real), result.view_ops)
