# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# (torch_mlir ships no type information for its native module.)
"""FX graph -> StableHLO by torch-mlir, with calls where a JAX rule supplies the body.

The only file that touches torch_mlir. Seen on torch-mlir 20261001 with torch 2.9 to 2.13.
Private API met here: GraphNodeImporter's `_import_torch_op_overload`, `_cc`, `_multi_result_nodes`,
FxImporter's `_config_check`, ContextCache, and the names of torch-mlir's passes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.dialects import func
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import ContextCache, FxImporter, GraphNodeImporter
from torch_mlir.passmanager import PassManager

from xla_dynamo.bookkeeping import optional
from xla_dynamo.errors import CompileError

from . import contexts
from .nodes import output_values, tensor_operands
from .source import Location, location_of

_stablehlo.register_stablehlo_passes()
_WRITES: str = _stablehlo.get_current_version()

# torchdynamo-export-to-torch-backend-pipeline without its inliner, which took half of its time:
# what is called here has no body yet.
_SIMPLIFY_TORCH = (
    "builtin.module("
    "func.func(torch-reduce-op-variants{extra-library=}),"
    "func.func(canonicalize),"
    "func.func(torch-decompose-complex-ops{}),"
    "func.func(torch-recompose-complex-ops),"
    "func.func(canonicalize))"
)
# torch-backend-to-stablehlo-backend-pipeline without its verifier, which refuses func.call.
_TORCH_TO_STABLEHLO = (
    "builtin.module("
    "func.func(convert-torch-to-stablehlo{allow-non-finites=true}),"
    "func.func(chlo-legalize-to-stablehlo),"
    "func.func(convert-torch-to-arith),"
    "func.func(canonicalize),func.func(cse),"
    "torch-func-backend-type-conversion-for-stablehlo,"
    "func.func(canonicalize),"
    "func.func(torch-finalizing-backend-type-conversion-for-stablehlo),"
    "func.func(stablehlo-canonicalize-dynamism),"
    "func.func(canonicalize),"
    "func.func(stablehlo-legalize-deprecated-ops{fail-on-unused=false}),"
    "canonicalize)"
)


class ImportRefused(CompileError):
    """torch-mlir could not lower a graph; the text holds its diagnostics."""


@dataclasses.dataclass(frozen=True)
class _Lowering:
    """A context with torch-mlir's dialects, and the pass managers in their order."""

    context: ir.Context
    passes: tuple[PassManager, ...]


@dataclasses.dataclass(frozen=True)
class Imported:
    """A module in the torch dialect, and what lowers it."""

    module: ir.Module
    lowering: _Lowering


def _lowering() -> _Lowering:
    context = ir.Context()
    context.enable_multithreading(False)  # no threads, which a process that forks would wait for
    torch_dialect.register_dialect(context)
    context.emit_error_diagnostics = True
    pipelines = (_SIMPLIFY_TORCH, _TORCH_TO_STABLEHLO)
    return _Lowering(context, tuple(PassManager.parse(text, context) for text in pipelines))


_lowerings = contexts.OfThread(_lowering)


def import_graph(graph: Graph, calls: Mapping[Node, str]) -> Imported:
    """`graph` as a module in the torch dialect.

    Nodes in `calls` become calls of a private declaration of that name; the others become ops of
    the torch dialect. Placeholders and results keep their order.
    """
    lowering = _lowerings.get()
    for node in graph.nodes:
        # FxImporter prefers "tensor_meta" to "val", but passes keep only "val" up to date.
        node.meta.pop("tensor_meta", None)
    importer = _Importer(lowering.context, calls)
    try:
        with _lowerings.dropped_on_error(), _as_ops(calls):
            importer.import_stateless_graph(graph, func_name="main")
    except Exception as error:
        raise ImportRefused(f"torch-mlir cannot import this graph: {error}") from error
    return Imported(importer.module, lowering)


@contextlib.contextmanager
def _as_ops(calls: Iterable[Node]) -> Iterator[None]:
    """FxImporter dispatches on the target's type before it asks us: show it an op throughout."""
    targets = {node: node.target for node in calls}
    for node in targets:
        node.target = torch.ops.aten.alias.default
    try:
        yield
    finally:
        for node, target in targets.items():
            node.target = target


@optional("")
def text(imported: Imported) -> str:
    """The module as MLIR text with locations."""
    return imported.module.operation.get_asm(enable_debug_info=True)


def to_stablehlo(imported: Imported, version: str) -> bytes:
    """Lower a module of `import_graph` in place; a portable artifact of StableHLO `version`.

    Raises:
        ImportRefused: with torch-mlir's diagnostics.
    """
    module = imported.module
    try:
        with _lowerings.dropped_on_error():
            _run_passes(imported)
            _replace_arith_constants(module)
            artifact = _stablehlo.serialize_portable_artifact(module, _older(version, _WRITES))
    except ImportRefused:
        raise
    except Exception as error:
        raise ImportRefused(f"not plain StableHLO after torch-mlir: {error}") from error
    _lowerings.count(len(artifact))
    return artifact


def _older(one: str, other: str) -> str:
    """The older of two StableHLO versions, such as "1.19.0": artifacts are read by later ones."""
    return min(one, other, key=lambda version: [int(part) for part in version.split(".")])


def _run_passes(imported: Imported) -> None:
    messages: list[str] = []

    def record(diagnostic: Any) -> bool:
        messages.append(str(diagnostic.message))
        return True

    with imported.lowering.context as context:
        handler = context.attach_diagnostic_handler(record)
        try:
            for manager in imported.lowering.passes:
                manager.run(imported.module.operation)
        except Exception as error:
            raise ImportRefused("\n".join([*messages, str(error)])) from None
        finally:
            handler.detach()


def _replace_arith_constants(module: ir.Module) -> None:
    """torch-mlir leaves scalars behind as arith.constant, which PJRT plug-ins refuse."""
    for function in module.body.operations:
        for block in function.regions[0]:
            for operation in list(block.operations):
                if operation.operation.name != "arith.constant":
                    continue
                constant = ir.Operation.create(
                    "stablehlo.constant",
                    results=[operation.result.type],
                    attributes={"value": operation.attributes["value"]},
                    loc=operation.location,
                    ip=ir.InsertionPoint(operation),
                )
                operation.result.replace_all_uses_with(constant.result)
                operation.operation.erase()


class _NodeImporter(GraphNodeImporter):
    """Emits `func.call @body(operands)` for the nodes that have a body."""

    def _import_torch_op_overload(
        self, loc: ir.Location, node: Node, concrete_target: Any = None
    ) -> None:
        importer = self.fx_importer
        assert isinstance(importer, _Importer)
        name = importer.calls.get(node)
        if name is None:
            super()._import_torch_op_overload(loc, node, concrete_target)
            return
        values = output_values(node)
        outputs = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
        results = [self._cc.value_info_to_type(values[i]) for i in outputs]
        operands = [self.resolve_node_value(operand) for operand in tensor_operands(node)]
        importer.declare(name, [operand.type for operand in operands], results)
        call = func.CallOp(results, name, operands, loc=loc)
        if isinstance(node.meta["val"], (tuple, list)):
            self._multi_result_nodes.add(node)
        for result, output in zip(call.results, outputs, strict=True):
            self.bind_node_value(node, result, output)


class _ContextCache(ContextCache):
    """Knows all dtypes; gives ops the user's line and the aten name, as the linker does."""

    __slots__ = ("called",)

    # The locations of the nodes whose targets _as_ops hides.
    called: Mapping[Node, Location]

    def dtype_to_type(self, dtype: torch.dtype) -> ir.Type:
        """The unsigned types that torch-mlir's table lacks: they occur in calls of rules."""
        name = {torch.uint16: "ui16", torch.uint64: "ui64"}.get(dtype)
        return ir.Type.parse(name, self._c) if name else super().dtype_to_type(dtype)

    def get_node_location(self, node: Node) -> ir.Location:
        found = self.called.get(node) or location_of(node)
        if not found.file:
            return ir.Location.name(found.op, context=self._c)
        line = ir.Location.file(found.file, found.line, 0, context=self._c)
        return ir.Location.name(found.op, childLoc=line, context=self._c)


class _Importer(FxImporter):
    def __init__(self, context: ir.Context, calls: Mapping[Node, str]) -> None:
        super().__init__(context=context, graph_node_importer_cls=_NodeImporter)
        self._cc = _ContextCache(self._c, py_attr_tracker=self._py_attr_tracker)
        self._cc.called = {node: location_of(node) for node in calls}
        self.calls = calls
        self._declared: set[str] = set()

    def _config_check(self) -> None:
        """Nothing: torch-mlir's check logs through the root logger, which installs a handler."""

    def declare(self, name: str, operands: list[ir.Type], results: list[ir.Type]) -> None:
        if name in self._declared:
            return
        self._declared.add(name)
        function_type = ir.FunctionType.get(operands, results)
        with ir.Location.unknown(self._c):
            func.FuncOp(name, function_type, visibility="private", ip=self._m_ip)
