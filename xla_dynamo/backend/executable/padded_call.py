"""A call of a program whose sizes are those of buckets: arguments are padded, results cut.

On the CPU, an argument is copied into memory of the bucket's size, and a result out of it. All that
depends on the sizes of the call is worked out once for each combination of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import memory_layout, view_chain
from xla_dynamo.backend.passes.padding.layouts import factors_of
from xla_dynamo.backend.passes.padding.plan import Agreement, Dims, PaddedGraph, Result
from xla_dynamo.backend.passes.padding.sizes import Numbers, evaluated
from xla_dynamo.errors import XlaDynamoError

Run = Callable[[list[Any]], Sequence[Any]]
# What is put into the padding. Tests put in what spoils every sum.
poison = False


class Layout:
    """Where the elements of a tensor are, for the sizes of a call.

    shape: without padding; strides: of a row-major tensor of it. padded: with padding.
    """

    def __init__(self, dims: Dims, real: Numbers, buckets: Numbers) -> None:
        self.shape = tuple(evaluated(dim.size, real) for dim in dims)
        self.padded = tuple(evaluated(dim.size, buckets) for dim in dims)
        self.strides = torch.empty(self.shape, device="meta").stride()
        factors = [f for dim in dims for f in factors_of(dim) or (1,)]
        self._parts = tuple(evaluated(f, real) for f in factors)
        self._padded_parts = tuple(evaluated(f, buckets) for f in factors)
        sizes = enumerate(zip(self._parts, self._padded_parts, strict=True))
        self._short = [(d, n, there) for d, (n, there) in sizes if n != there]
        self._has_parts = self._parts != self.shape

    def pad(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, which has no padding, with it."""
        if not self._short:
            return x
        on, x = x.device, x.detach()
        x = x.cpu() if on.type != "cpu" else x
        padded = torch.empty(self._padded_parts, dtype=x.dtype, device="cpu")
        inside = padded
        for d, n, there in self._short:
            _spoil_or_clear(inside.narrow(d, n, there - n))
            inside = inside.narrow(d, 0, n)
        if self._has_parts:
            x, padded = x.reshape(self._parts), padded.view(self.padded)
        inside.copy_(x)
        return padded if on.type == "cpu" else padded.to(on)

    def cut(self, x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        """`x`, which has padding, without it, and with these strides where they are dense."""
        if not self._short and x.stride() == strides:
            return x
        on = x.device
        x = x.cpu() if on.type != "cpu" else x
        x = x.reshape(self._padded_parts) if self._has_parts else x
        for d, n, _ in self._short:
            x = x.narrow(d, 0, n)
        if on.type != "cpu":
            return x.reshape(self.shape).contiguous().to(on)
        if strides != self.strides:
            return _restrided(x.reshape(self.shape), strides)
        if not self._has_parts:
            return x.clone(memory_format=torch.contiguous_format)
        made = torch.empty(self.shape, dtype=x.dtype, device="cpu")
        made.view(self._parts).copy_(x)
        return made


def _spoil_or_clear(x: torch.Tensor) -> None:
    if not poison:
        x.zero_()
    elif x.dtype == torch.bool:
        x.fill_(True)
    elif x.is_floating_point() or x.is_complex():
        x.fill_(math.nan)
    else:
        x.fill_(torch.iinfo(x.dtype).max)


def _restrided(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A copy of `x` with these strides, if they are dense but for repeated elements."""
    shape, once = x.shape, list(x.shape)
    for d, step in enumerate(strides):
        if step == 0 and shape[d] > 1:
            x, once[d] = x.narrow(d, 0, 1), 1
    if not memory_layout.fills_memory(once, strides):
        return (
            x.expand(shape).contiguous()
            if x.shape != shape
            else x.clone(memory_format=torch.contiguous_format)
        )
    made = torch.empty_strided(once, strides, dtype=x.dtype, device=x.device).copy_(x)
    return made if made.shape == shape else made.as_strided(shape, strides)


class Saved:
    """What forward has saved, which it may have padded, as backward is given it.

    names: by position. real, buckets: what all symbols stand for. same: which are others.
    """

    def __init__(
        self,
        agreement: Agreement,
        names: Mapping[int, str],
        real: Numbers,
        buckets: Numbers,
        same: frozenset[tuple[Any, Any]],
    ) -> None:
        self._agreement = agreement
        self.names = names
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
                return layout.cut(x, layout.strides)
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


class PaddedCall:
    """Runs a padded program for one combination of sizes."""

    def __init__(
        self, run: Run, graph: PaddedGraph, real: Numbers, visible: int, saved: Saved
    ) -> None:
        self._run, self._saved = run, saved
        buckets = graph.plan.buckets
        self._arguments = [
            (position, Layout(dims, real, buckets), graph.names[position] in graph.plan.layouts)
            for position, dims in enumerate(graph.arguments)
            if dims is not None and (position in saved.names or any(dim.is_padded for dim in dims))
        ]
        self._numbers = numbers_of(graph, real)
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
            arguments[position] = layout.pad(x)
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
    return lambda x, _: layout.cut(x, strides)


def _real_ops(result: Result, real: Numbers) -> view_chain.ViewOps:
    """The view ops of a result for the sizes of a call."""
    return pytree.tree_map_only(sympy.Basic, lambda size: evaluated(size, real), result.view_ops)
