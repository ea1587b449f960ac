"""Pad and cut what is on a device with memory of its own: by small programs there, one for a shape.

Nothing goes through the host then, and nobody waits for what is being computed. Such a program
takes some 50 ms to compile: the first of a shape goes through the host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph.torch_private import FakeTensorMode
from xla_dynamo.backend.runtime import on_device, resident
from xla_dynamo.bounded import Bounded
from xla_dynamo.errors import CompileError, UnsupportedOp

from .padded_layout import Layout, fill_of

aten = torch.ops.aten
Run = Callable[[list[Any]], Sequence[Any]]
# Of shapes; a program of each takes little memory.
_PROGRAMS = 512


class DevicePadding:
    """The programs of one device that pad and cut.

    compile: a graph, and why it is compiled -> what runs it.
    home: the device of tensors that are arrays there.
    """

    def __init__(
        self, compile: Callable[[Graph, str], Run], home: torch.device | None = None
    ) -> None:
        self._compile, self.home = compile, home
        # None: one came; False: it does not compile.
        self._programs: Bounded[Any, Run | Literal[False] | None] = Bounded(_PROGRAMS)
        self._lock = threading.Lock()

    def pad(self, layout: Layout, x: torch.Tensor) -> torch.Tensor:
        """`layout.pad(x)`, where `x` is."""
        run = self.padding(layout, x.dtype, x.device) if layout.short and _is_there(x) else None
        return layout.pad(x) if run is None else run([x.detach()])[0]

    def cut(self, layout: Layout, x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        """`layout.cut(x, strides)`, where `x` is: such tensors have no strides."""
        run = self.cutting(layout, x.dtype, x.device) if layout.short and _is_there(x) else None
        return layout.cut(x, strides) if run is None else run([x.detach()])[0]

    def padding(self, layout: Layout, dtype: torch.dtype, on: torch.device) -> Run | None:
        """What pads values of these shapes; None for the first of them."""
        fill = fill_of(dtype)
        key = True, str(fill), layout.shape, layout.parts, layout.padded_parts, dtype, on
        return self._program(key, lambda: _padding(layout, dtype, on, fill), layout)

    def cutting(self, layout: Layout, dtype: torch.dtype, on: torch.device) -> Run | None:
        """What cuts values of these shapes; None for the first of them."""
        key = False, "", layout.padded, layout.parts, layout.padded_parts, dtype, on
        return self._program(key, lambda: _cutting(layout, dtype, on), layout)

    def _program(self, key: Any, graph: Callable[[], Graph], layout: Layout) -> Run | None:
        run = self._programs.get(key)
        if run is not None:
            return run or None
        with self._lock:
            if key not in self._programs:
                self._programs[key] = None
                return None
            what = "is padded to" if key[0] else "is cut out of"
            try:
                run = self._compile(graph(), f"{layout.shape} {what} {layout.padded}")
            except (CompileError, UnsupportedOp) as error:
                metrics.compile_log.info("what is padded goes through the host: %s", error)
                run = False
            self._programs[key] = run
            return run or None


def _is_there(x: torch.Tensor) -> bool:
    return type(x) is on_device.OnDevice or x.device.type in resident.RESIDENCIES


def _padding(layout: Layout, dtype: torch.dtype, on: torch.device, fill: float) -> Graph:
    many: list[int] = []  # of the last dimension first
    for n, there in zip(layout.parts[::-1], layout.padded_parts[::-1], strict=True):
        many += [0, there - n]
    fits = (aten.constant_pad_nd.default, layout.padded_parts, (many, fill))
    steps = [(aten.view.default, layout.parts, (layout.parts,)), fits]
    steps.append((aten.view.default, layout.padded, (layout.padded,)))
    return _graph(layout.shape, steps, dtype, on)


def _cutting(layout: Layout, dtype: torch.dtype, on: torch.device) -> Graph:
    shape = list(layout.padded_parts)
    steps: list[Any] = [(aten.view.default, shape, (shape,))]
    for d, n, _ in layout.short:
        shape = [*shape[:d], n, *shape[d + 1 :]]
        steps.append((aten.slice.Tensor, shape, (d, 0, n)))
    steps.append((aten.view.default, layout.shape, (layout.shape,)))
    return _graph(layout.padded, steps, dtype, on)


def _graph(
    shape: Sequence[int], steps: Sequence[Any], dtype: torch.dtype, on: torch.device
) -> Graph:
    """Ops in a row: each with the shape that it gives, and its arguments."""
    graph = Graph()
    with FakeTensorMode():

        def noted(node: Node, shape: Sequence[int]) -> Node:
            node.meta["val"] = torch.empty(list(shape), dtype=dtype, device=on)
            return node

        node = noted(graph.placeholder("x"), shape)
        for op, after, arguments in steps:
            if list(after) != list(node.meta["val"].shape):
                listed = [list(a) if isinstance(a, tuple) else a for a in arguments]
                node = noted(graph.call_function(op, (node, *listed)), after)
    graph.output((node,))
    return graph
