"""What the lazy device tells the report of a run (`xla_dynamo.report`): launches, steps, copies."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from xla_dynamo.backend import observers
from xla_dynamo.backend.observers import Source, Traffic
from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.execution import compiled_graphs, program_cache, sync
from xla_dynamo.compat.recording import metrics
from xla_dynamo.compat.values.describe import code_line
from xla_dynamo.lazily import lazily

from . import ir, metrics_report

if TYPE_CHECKING:
    from xla_dynamo.reporting import model, session
else:
    model = lazily("xla_dynamo.reporting.model", globals())
    session = lazily("xla_dynamo.reporting.session", globals())


@functools.cache
def install() -> None:
    """Make this way in known to reports, and begin one if XLA_DYNAMO_REPORT asks for it."""
    observers.add(Source(_listen, _traffic, _fallbacks))
    if observers.asked():
        session.begin_if_asked()


def _launched(trace: Any, program: Any) -> None:
    observers.launched_as(id(program))


def _compiled(trace: Any, program: Any, executable: Any) -> None:
    observers.described(executable, lambda: _ops(trace, program))


def _ops(trace: Any, program: Any) -> list[model.Op]:
    """The ops of a trace; those of its graph are not known where the disk had its program."""
    nodes = ir.nodes(trace, program.results)[: model.MOST]
    return [_op(i, node) for i, node in enumerate(nodes)]


def _op(number: int, node: ir.IrNode) -> model.Op:
    kind = node.op.removeprefix("aten::")
    shapes = ", ".join(map(str, node.shapes))
    inputs = tuple(dict.fromkeys(position for position, _ in node.operands))
    at = node.location
    if kind == "xla::device_data":
        return model.Op(f"argument_{number}", "argument", shapes, inputs, "", "", "")
    where = "" if at is None else f"{at.file}:{at.line}"
    code = "" if at is None else code_line(at)
    return model.Op(f"{kind}_{number}", kind, shapes, inputs, "", where, code)


def _graph_launched(executable: Any) -> None:
    observers.launched_as(id(executable))


def _listen(begin: bool) -> None:
    if begin:
        program_cache.on_compile.append(_compiled)
        sync.on_launch.append(_launched)
        compiled_graphs.on_launch.append(_graph_launched)
        step_barrier.after_step(observers.stepped)
    else:
        program_cache.on_compile.remove(_compiled)
        sync.on_launch.remove(_launched)
        compiled_graphs.on_launch.remove(_graph_launched)
        step_barrier.not_after_step(observers.stepped)


_COPIES = (
    ("uploads (xla tensors)", "OutboundData", "TransferToDeviceTime"),
    ("downloads (xla tensors)", "InboundData", "TransferFromDeviceTime"),
)


def _traffic() -> list[Traffic]:
    metrics.settle()
    found = []
    for what, data, time in _COPIES:
        size, spent = metrics_report.metric_data(data), metrics_report.metric_data(time)
        if size is not None:
            seconds = None if spent is None else spent[1] / 1e9
            found.append(Traffic(what, size[0], int(size[1]), seconds))
    reads = metrics_report.counter_value(_READ)
    if reads:
        found.append(Traffic("of these: values read by .item()", reads, None))
    return found


_READ = "aten::_local_scalar_dense"  # .item(), which no device could do


def _fallbacks() -> dict[str, int]:
    ops = metrics_report.executed_fallback_ops()
    return {op: metrics_report.counter_value(op) or 0 for op in ops if op != _READ}
