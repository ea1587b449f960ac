"""torch_xla.step and torch_xla.compile: a function or block that is a step of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.execution import automatic_barriers, settings, sync
from xla_dynamo.compat.recording import devices, pending
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.compat.execution import recompile_reason
else:
    recompile_reason = lazily("xla_dynamo.compat.execution.recompile_reason", globals())


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool | None = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: Mapping[str, Any] | None = None,
) -> Any:
    """A barrier before and after a function, or a block: `with compile():`, `@compile()`.

    full_graph: a launch inside (a print, an .item()) is an error.
    max_different_graphs: how many different programs the calls may record.
    custom_compile_options: options of XLA's compiler, from now on.

    Raises:
        RuntimeError: in the function, if it breaks one of these rules.
    """
    if custom_compile_options is not None:
        sync.set_option("compiler_options", dict(custom_compile_options) or None)
    graphs: dict[int, Any] = {}
    label = name or getattr(f, "__name__", "") or ("" if f is None else type(f).__name__)

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        before, each_op = settings.flag("graph_name"), automatic_barriers.runs_each_op()
        automatic_barriers.run_each_op(False)
        try:
            settings.set_flag("graph_name", f"{label}_clear_pending" if label else before)
            step_barrier.mark_step()
            settings.set_flag("graph_name", label)
            with settings.no_launches(bool(full_graph)):
                yield
                if max_different_graphs is not None:
                    _limit(graphs, max_different_graphs)
        finally:
            try:
                step_barrier.mark_step()
            finally:
                settings.set_flag("graph_name", before)
                automatic_barriers.run_each_op(each_op)

    return scope() if f is None else scope()(f)


def step() -> Any:
    """A block or function with a barrier before and after."""
    return compile()


def _limit(graphs: dict[int, Any], most: int) -> None:
    """Note the pending program; an error if it is one more than `most`."""
    trace = pending.trace(torch.device("xla", devices.index_of()))
    graphs[id(trace.state)] = trace.state
    if len(graphs) > most:
        reason = recompile_reason.reason(trace)
        graphs.popitem()
        raise RuntimeError(
            f"Maximum number of different graphs allowed per function exceeded: {most}\n{reason}"
        )
