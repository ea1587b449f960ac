"""What is pending for some tensors -> text: torch_xla's IR and dot, StableHLO, HLO.

Nothing is compiled or launched. A tensor that is computed already has nothing pending.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

import torch

from xla_dynamo.backend import options, pipeline
from xla_dynamo.backend.executable import launch
from xla_dynamo.backend.lowering import Lowered
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.compat.execution import sync, trace_to_fx
from xla_dynamo.compat.recording import devices, windows
from xla_dynamo.compat.recording.trace import Window, window_of
from xla_dynamo.compat.values.values import Ref, Value, value_of

from .ir import ir_debug, nodes, print_dot, print_nodes, shape, shapes


def text(tensors: Sequence[torch.Tensor]) -> str:
    """The IR of what is pending for `tensors`, as `_XLAC._get_xla_tensors_text` gives it."""
    window, wanted = _pending(tensors)
    return print_nodes(nodes(window, wanted)) if window else "IR {\n}\n"


def dot(tensors: Sequence[torch.Tensor]) -> str:
    """The same as a graph for Graphviz."""
    window, wanted = _pending(tensors)
    return print_dot(nodes(window, wanted)) if window else "digraph G {\n}\n"


def stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """StableHLO of the program that computes `tensors` (default: everything that is pending).

    Raises:
        UnsupportedOp, CompileError: an op has no lowering to XLA.
    """
    window, wanted = _everything() if tensors is None else _pending(tensors)
    if window is None or not wanted:
        return ""
    lowered, name = _lowered(window, wanted)
    body = str(lowered.module.operation.get_asm(enable_debug_info=ir_debug()))
    return body.replace("module ", f"module @{name} ", 1) if "module @" not in body else body


def stablehlo_bytecode(tensors: Sequence[torch.Tensor] | None = None) -> bytes:
    """`stablehlo` as MLIR bytecode."""
    window, wanted = _everything() if tensors is None else _pending(tensors)
    if window is None or not wanted:
        return b""
    data = io.BytesIO()
    _lowered(window, wanted)[0].module.operation.write_bytecode(data)
    return data.getvalue()


def hlo(tensors: Sequence[torch.Tensor]) -> str:
    """HLO of the program that computes `tensors`, before XLA's passes.

    Raises:
        UnsupportedOp, CompileError: an op has no lowering to XLA.
    """
    window, wanted = _pending(tensors)
    return window_hlo(window, wanted) if window else ""


def window_hlo(window: Window, wanted: Sequence[int]) -> str:
    """HLO of the pending program for the values `wanted` of a window."""
    lowered, name = _lowered(window, wanted)
    return pjrt.hlo_text(lowered.module).replace("HloModule main", f"HloModule {name}", 1)


def graph_hash(tensors: Sequence[torch.Tensor]) -> bytes:
    """16 bytes that are equal for equal pending programs, also in another process."""
    window, wanted = _pending(tensors)
    return window_hash(window, wanted) if window else bytes(16)


def window_hash(window: Window, wanted: Sequence[int]) -> bytes:
    """The hash of the pending program for the values `wanted` of a window."""
    lines = [
        (n.op, tuple(map(shape, n.shapes)), n.operands, n.static, n.roots)
        for n in nodes(window, wanted)
    ]
    return hashlib.blake2b(repr(lines).encode(), digest_size=16).digest()


def debug_info(tensor: torch.Tensor) -> str:
    """What a tensor is made of; has "XLAData: None" while it is pending."""
    value = value_of(tensor)
    number = tensor.untyped_storage()._cdata
    lines = [
        "XLATensor {",
        f"TensorID: {number}",
        f"AliasID: {number}",
        f"Device: {devices.real(value.home.device)}",
        f"XLA Shape: {shape(value.meta).split('{')[0]}",
        "ShardingSpec: None",
        f"IR: {_ir_of(tensor, value)}",
    ]
    if value.array is None:
        lines.append("XLAData: None")
    else:
        lines += ["XLAData: ", f"  Data Device: {devices.real(value.home.device)}"]
        lines += [f"  Data Shape: {shape(value.meta).split('{')[0]}"]
        lines += [f"  Data Handle: {id(value.array)}"]
    return "\n".join([*lines, "Tensor on host: None", "}", ""])


def _ir_of(tensor: torch.Tensor, value: Value) -> str:
    window, wanted = _pending([tensor])
    if value.array is not None or window is None:
        return "None"
    node = nodes(window, wanted)[-1]
    return f"[] {node.op}, xla_shape={shapes(node)}, dynamic_dims: ()"


def _pending(tensors: Sequence[torch.Tensor]) -> tuple[Window | None, list[int]]:
    """The window of the tensors and which of its values they are; those computed are left out."""
    values = [value for value in map(value_of, tensors) if value.array is None]
    for value in values:
        if value.stamp is not value.home.stamp:
            value.home.adopt(value)  # of torch.empty
    if not values:
        return None, []
    window = window_of(values[0])
    return window, [
        value.ref.index for value in values if value.home is window and type(value.ref) is Ref
    ]


def _everything() -> tuple[Window | None, list[int]]:
    """All pending values of the thread's device that somebody holds."""
    window = windows.window(devices.default())
    return window, list(sync.alive(window))


def _lowered(window: Window, wanted: Sequence[int]) -> tuple[Lowered, str]:
    """The StableHLO module of what is pending, and a name for it."""
    path = window.state.path()
    builder = trace_to_fx.build(path, window.inputs)
    builder.close(wanted)
    chosen = options.parse(None, None)
    target = target_of(chosen, sync.device_of(window).platform)
    context = Context("pending trace", WayIn.LAZY, target)
    pipeline.run(Stage.JOINT, builder.graph, context)
    pipeline.run(Stage.STATIC, builder.graph, context)
    name = f"IrToHlo.{len(builder.graph.nodes)}"
    return launch.lower(builder.graph, context, keep_text=True), name
