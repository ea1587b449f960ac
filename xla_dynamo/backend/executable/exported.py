"""Lower an exported program (torch.export) to one StableHLO module, by the same passes.

The module's arguments are the program's parameters, buffers, constants and tensor inputs, in its
order, then a PRNG key (uint32 of shape [2]) if it draws random numbers. Other inputs (None,
numbers, strings) are constants of the program. The module's results are the program's tensors.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Graph, Node

from xla_dynamo.backend import options, pipeline
from xla_dynamo.backend.decompositions.table import traced_decompositions
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering import custom_calls, registry, unsupported
from xla_dynamo.backend.lowering.lower import Lowered
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.errors import UnsupportedOp

from .compile import lower


def lower_exported(exported: ExportedProgram) -> Lowered:
    """The StableHLO module of `exported`, whose shapes must be static.

    Raises:
        UnsupportedOp: an op cannot be lowered, or its shape depends on data.
    """
    return lower_decomposed(decomposed(exported))[0]


def decomposed(exported: ExportedProgram) -> ExportedProgram:
    """`exported` in the ops that are lowered, from which the module's arguments are taken."""
    return exported.run_decompositions(dict(traced_decompositions()))


def lower_decomposed(
    program: ExportedProgram, *, writes: bool = True, calls: Collection[str] = ()
) -> tuple[Lowered, bool]:
    """The StableHLO module of a `decomposed` program, and whether it takes a PRNG key.

    writes: whether what the program writes to buffers and inputs is among the results.
    calls: namespaces of ops that become custom calls if they have no lowering.

    Raises:
        UnsupportedOp: an op cannot be lowered, or its shape depends on data.
    """
    chosen = options.parse(None, None)
    # What is exported runs anywhere: no call of this process's PyTorch.
    target = replace(target_of(chosen, chosen.platform or default_platform()), kernels="xla")
    graph = fx.copy(program.graph)
    _check_sizes(graph)
    if not writes:
        _drop_writes(graph, program)
    context = Context("exported program", WayIn.EXPORT, target)
    with registry.with_rules(custom_calls.rules_of(graph, calls)):
        pipeline.run(Stage.JOINT, graph, context)
        pipeline.run(Stage.ATEN, graph, context)
        dynamic = filter(unsupported.is_data_dependent, graph.nodes)
        unsupported.refuse(dict.fromkeys(dynamic, unsupported.DATA_DEPENDENT))
        pipeline.run(Stage.STATIC, graph, context)
        unsupported.refuse(context.lifted.unsupported)
        _keep_tensors(graph)
        return lower(graph, context), context.lifted.keys > 0


def _drop_writes(graph: Graph, program: ExportedProgram) -> None:
    named = zip(fx.results(graph), program.graph_signature.output_specs, strict=True)
    kept = tuple(result for result, spec in named if spec.kind is OutputKind.USER_OUTPUT)
    graph.output_node().args = (kept,)
    edit.drop_unused(graph)


def _check_sizes(graph: Graph) -> None:
    for node in fx.placeholders(graph):
        sizes = getattr(node.meta["val"], "shape", ())
        if any(map(fx.is_symbolic, sizes)) or fx.is_symbolic(node.meta["val"]):
            raise UnsupportedOp(
                f"The input {node.name} of the exported program has a dynamic shape "
                f"({', '.join(map(str, sizes)) or node.meta['val']}), and StableHLO of static "
                "shapes is written. Export the model without dynamic_shapes, once for each size."
            )


def _keep_tensors(graph: Graph) -> None:
    """Drop arguments and results that are not tensors."""
    results = [result for result in fx.results(graph) if isinstance(result, Node)]
    graph.output_node().args = (tuple(results),)
    for node in fx.placeholders(graph):
        if not isinstance(node.meta["val"], torch.Tensor):
            graph.erase_node(node)
