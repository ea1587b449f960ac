"""The pending computation of some tensors as text: torch_xla's IR and dot, StableHLO, HLO.

Nothing is compiled or launched. A tensor that is computed already has nothing pending.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from xla_dynamo.backend import options
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.compat.execution import auto_sharding, spmd, sync
from xla_dynamo.compat.kernels import sharding
from xla_dynamo.compat.recording import devices, pending
from xla_dynamo.compat.recording.trace import Trace, trace_of
from xla_dynamo.compat.values.values import Held, Ref, value_of
from xla_dynamo.lazily import lazily

from .ir import IrNode, ir_debug, nodes, print_dot, print_nodes, shape, shapes

if TYPE_CHECKING:
    from xla_dynamo.backend import pipeline
    from xla_dynamo.backend.executable import compile
    from xla_dynamo.backend.lowering.lower import Lowered
    from xla_dynamo.backend.runtime import pjrt
    from xla_dynamo.compat.execution import trace_to_fx
else:
    pipeline = lazily("xla_dynamo.backend.pipeline", globals())
    compile = lazily("xla_dynamo.backend.executable.compile", globals())
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())
    trace_to_fx = lazily("xla_dynamo.compat.execution.trace_to_fx", globals())


def text(tensors: Sequence[torch.Tensor]) -> str:
    """The IR of what is pending for `tensors`, as `_XLAC._get_xla_tensors_text` gives it."""
    return print_nodes(_nodes(tensors))


def dot(tensors: Sequence[torch.Tensor]) -> str:
    """The same as a graph for Graphviz."""
    return print_dot(_nodes(tensors))


def stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """StableHLO of the program that computes `tensors` (default: everything that is pending).

    Raises:
        UnsupportedOp, CompileError: an op has no lowering to XLA.
    """
    trace, wanted = _pending(tensors)
    if trace is None or not wanted:
        return ""
    lowered, name = _lowered(trace, wanted)
    body = str(lowered.module.operation.get_asm(enable_debug_info=ir_debug()))
    return body.replace("module ", f"module @{name} ", 1) if "module @" not in body else body


def stablehlo_bytecode(tensors: Sequence[torch.Tensor] | None = None) -> bytes:
    """`stablehlo` as MLIR bytecode."""
    trace, wanted = _pending(tensors)
    if trace is None or not wanted:
        return b""
    data = io.BytesIO()
    _lowered(trace, wanted)[0].module.operation.write_bytecode(data)
    return data.getvalue()


def hlo(tensors: Sequence[torch.Tensor]) -> str:
    """HLO of the program that computes `tensors`, before XLA's passes.

    Raises:
        UnsupportedOp, CompileError: an op has no lowering to XLA.
    """
    trace, wanted = _pending(tensors)
    return trace_hlo(trace, wanted) if trace else ""


def trace_hlo(trace: Trace, wanted: Sequence[int]) -> str:
    """HLO of the pending program for the values `wanted` of a trace."""
    lowered, name = _lowered(trace, wanted)
    return pjrt.hlo_text(lowered.module).replace("HloModule main", f"HloModule {name}", 1)


def graph_hash(tensors: Sequence[torch.Tensor]) -> bytes:
    """16 bytes that are equal for equal pending programs, also in another process."""
    trace, wanted = _pending(tensors)
    return trace_hash(trace, wanted) if trace else bytes(16)


def trace_hash(trace: Trace, wanted: Sequence[int]) -> bytes:
    """The hash of the pending program for the values `wanted` of a trace."""
    lines = [
        (n.op, tuple(map(shape, n.shapes)), n.operands, n.static, n.roots)
        for n in nodes(trace, wanted)
    ]
    text = f"{lines}{auto_sharding.of_programs()}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def debug_info(tensor: torch.Tensor) -> str:
    """A tensor's parts, as torch_xla prints them; "XLAData: None" while it is pending."""
    if tensor.device.type != "xla":
        return "Not a XLATensor\n"
    value = value_of(tensor)
    number = tensor.untyped_storage()._cdata
    split = None if value.array is None else sharding.split_of(tensor)
    lines = [
        "XLATensor {",
        f"TensorID: {number}",
        f"AliasID: {number}",
        f"Device: {'SPMD:0' if spmd.where() else devices.real(value.home.device)}",
        f"XLA Shape: {shape(value.meta).split('{')[0]}",
        f"ShardingSpec: {split.text() if split else None}",
        f"IR: {_ir_of(tensor)}",
    ]
    if value.array is None:
        lines.append("XLAData: None")
    elif split is not None:
        lines += ["XLAShardedData: ", "  Data Device: SPMD:0"]
        lines += [f"  Data Shape: {shape(value.meta).split('{')[0]}"]
        lines += [f"  OpSharding: {split.text()}", f"  NumShards: {len(sharding.local_numbers())}"]
    else:
        lines += ["XLAData: ", f"  Data Device: {devices.real(value.home.device)}"]
        lines += [f"  Data Shape: {shape(value.meta).split('{')[0]}"]
        lines += [f"  Data Handle: {id(value.array)}"]
    host = type(value.ref) is Held
    on_host = f"with size {list(value.meta.shape)}" if host and value.array is None else "None"
    return "\n".join([*lines, f"Tensor on host: {on_host}", "}", ""])


def _ir_of(tensor: torch.Tensor) -> str:
    found = _nodes([tensor])
    return (
        f"[] {found[-1].op}, xla_shape={shapes(found[-1])}, dynamic_dims: ()" if found else "None"
    )


def _nodes(tensors: Sequence[torch.Tensor]) -> list[IrNode]:
    trace, wanted = _pending(tensors)
    return nodes(trace, wanted) if trace else []


def _pending(tensors: Sequence[torch.Tensor] | None) -> tuple[Trace | None, list[int]]:
    """The trace of the tensors and which of its values they are; those computed are left out.

    None: all pending values of the thread's device that somebody holds.
    """
    if tensors is None:
        trace = pending.trace(devices.default())
        return trace, list(sync.alive(trace))
    values = [value for value in map(value_of, tensors) if value.array is None]
    values = [value for value in values if type(value.ref) is not Held]
    for value in values:
        if value.stamp is not value.home.stamp:
            value.home.adopt(value)  # of torch.empty
    if not values:
        return None, []
    trace = trace_of(values[0])
    return trace, [
        value.ref.index for value in values if value.home is trace and type(value.ref) is Ref
    ]


def _lowered(trace: Trace, wanted: Sequence[int]) -> tuple[Lowered, str]:
    """The StableHLO module of what is pending, and a name for it."""
    path = trace.state.path()
    builder = trace_to_fx.build(path, trace.inputs)
    builder.close(wanted)
    chosen = options.parse(None, None)
    target = target_of(chosen, pjrt.platform(sync.device_of(trace)))
    context = Context("pending trace", WayIn.LAZY, target)
    pipeline.run(Stage.JOINT, builder.graph, context)
    pipeline.run(Stage.STATIC, builder.graph, context)
    name = f"IrToHlo.{len(builder.graph.nodes)}"
    return compile.lower(builder.graph, context), name
