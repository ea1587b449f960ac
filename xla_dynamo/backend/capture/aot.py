"""Make functional ATen graphs for forward, backward and inference of Dynamo's graph.

The only file that touches AOTAutograd. Seen on torch 2.13. Private API met here:
torch._dynamo.backends.common.aot_autograd, torch._functorch.aot_autograd.aot_export_joint_simple,
min_cut_rematerialization_partition, functorch's config (cse, recompute_views), CompileContext,
TracingContext.fw_metadata (static_input_indices, num_forward_returns, tokens, input_info,
mutated_inp_runtime_indices) and fake_mode, the meta["desc"] of a joint graph's nodes, and the
`_dynamo_source` of placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._guards import CompileContext, TracingContext
from torch._subclasses import FakeTensorMode
from torch.export._trace import _export_to_torch_ir
from torch.fx import GraphModule

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.passes.padding.plan import Agreement
from xla_dynamo.bookkeeping import optional

from . import aot_cache, recapture_reason

_SIZE = re.compile(r"\.size\(\)\[(\d+)\]$")


@dataclass(frozen=True)
class GraphInfo:
    """What AOTAutograd knows about a graph beyond its nodes.

    name: Dynamo's compile id and the kind: "0/0 forward".
    reason: why Dynamo captured it: the first call, or which argument changed.
    argument_names: what the user calls each argument, as far as Dynamo knows.
    static: positions of arguments that are the same tensors at every call (parameters, buffers).
    visible: how many leading outputs the user sees; the others are saved for backward.
    no_output_aliasing: whether outputs must not share memory. Gradients must not: autograd keeps a
        tensor that nothing else refers to as `.grad`, and users change that in place.
    capture: one object for the graphs of one capture: what recompiles one, recompiles all, and what
        is padded in one, is padded in all.
    results: the names of what it returns.
    is_inference: whether nothing is differentiated.
    updates: which of its results replace which of its arguments: (result, argument) by position.
    """

    name: str
    reason: str
    argument_names: tuple[str, ...]
    static: frozenset[int]
    visible: int
    no_output_aliasing: bool = False
    capture: Agreement = field(default_factory=Agreement, compare=False)
    results: tuple[str, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    is_inference: bool = False


Compiler = Callable[[GraphModule, GraphInfo], Callable[[list[Any]], Sequence[Any]]]


@dataclass(frozen=True)
class Lowering:
    """What makes of each graph of a capture what runs; it can be pickled.

    name: Dynamo's compile id. sources: what the user calls the arguments. Others: see GraphInfo.
    """

    compiler: Compiler
    name: str
    reason: str
    sources: tuple[str, ...]
    capture: Agreement = field(default_factory=Agreement)

    def __call__(self, graph: GraphModule, kind: str, told: Mapping[str, Any]) -> Any:
        placeholders = tuple(node.name for node in fx.placeholders(graph.graph))
        named = kind != "backward" and len(self.sources) == len(placeholders)
        names, name = self.sources if named else placeholders, f"{self.name} {kind}"
        return self.compiler(
            graph, GraphInfo(name, self.reason, names, capture=self.capture, **told)
        )


def capture_name() -> str:
    """What Dynamo calls the capture that is being compiled: "0/0"."""
    return str(CompileContext.current_compile_id() or "?")


def of_fixed_sizes(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fake tensors of the capture that is being compiled, for arguments that Dynamo has not seen.

    AOTAutograd would take their sizes for symbols, and every op that meets one is slow to trace.
    """
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None:
        return list(tensors)
    mode = context.fake_mode
    return [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors]


def compile(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    compiler: Compiler,
    decompositions: Mapping[Any, Callable[..., Any]],
    joint_pass: Callable[[GraphModule, int | None], None],
    cache_key: str | None = None,
) -> Callable[..., Any]:
    """Differentiate and functionalize `module`; each graph that comes out goes to `compiler`.

    `joint_pass` edits, in place, the joint graph of forward and backward, and is given how many of
    its leading results are forward's; or the inference graph, and None.
    `cache_key` names what these three depend on beside the graph, if AOTAutograd's cache may keep
    what comes out: see aot_cache.
    """
    sources = _argument_names(module)
    compile_id = CompileContext.current_compile_id()
    frame = getattr(compile_id, "frame_id", None) or 0
    capture = getattr(compile_id, "frame_compile_id", None) or 0
    reason = recapture_reason.reason(frame, capture, sources, example_inputs)
    lower = Lowering(compiler, str(compile_id or "?"), reason, sources)
    static_names: set[str] = set()

    def known(kind: str, graph: GraphModule) -> dict[str, Any]:
        placeholders = [node.name for node in fx.placeholders(graph.graph)]
        outputs = len(fx.results(graph.graph))
        context = TracingContext.try_get()
        metadata = context.fw_metadata if context else None
        if kind != "backward" and metadata is not None:
            static_names.update(placeholders[i] for i in metadata.static_input_indices)
            if kind == "forward":
                outputs = metadata.num_forward_returns + len(getattr(metadata, "tokens", ()))
        return {
            "static": frozenset(i for i, name in enumerate(placeholders) if name in static_names),
            "visible": outputs,
            "no_output_aliasing": kind == "backward",
            "results": tuple(str(result) for result in fx.results(graph.graph)),
            "updates": _updates(metadata, len(placeholders)) if kind != "backward" else (),
            "is_inference": kind == "inference",
        }

    def stage(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: GraphModule, inputs: Sequence[Any]) -> Any:
            if kind == "inference":
                joint_pass(graph, None)
            if kind != "backward":
                for node in fx.placeholders(graph.graph):
                    node.meta["argument"] = True  # the user's tensor: it may be a view
            run = make(graph, kind, known(kind, graph))
            run._boxed_call = True
            return run

        return kept(compile_graph)

    def partition(joint: GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        joint_pass(joint, kwargs["num_fwd_outputs"])
        # passes/joint/merge_equal did what cse does. A view that is saved would be a copy.
        with functorch_config.patch(cse=False, recompute_views=True):
            return min_cut_rematerialization_partition(joint, joint_inputs, **kwargs)

    with aot_cache.used(module, example_inputs, cache_key, lower) as (make, kept):
        return aot_autograd(
            fw_compiler=stage("forward"),
            bw_compiler=stage("backward"),
            inference_compiler=stage("inference"),
            partition_fn=partition,
            decompositions=dict(decompositions),
        )(module, example_inputs)


@optional(())
def _updates(metadata: Any, arguments: int) -> tuple[tuple[int, int], ...]:
    """What AOTAutograd copies back after the call: the first results, into arguments.

    Not where arguments of its own precede the user's, or tensor subclasses stand for several.
    """
    if metadata is None or len(metadata.input_info) != arguments or metadata.tokens:
        return ()
    changed = enumerate(metadata.mutated_inp_runtime_indices)
    infos = metadata.input_info
    return tuple(
        (result, argument)
        for result, argument in changed
        if infos[argument].mutates_data and not infos[argument].mutates_metadata
    )


def capture_module(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> GraphModule:
    """Dynamo's graph of `model(*inputs)`: without a graph break, or its error is raised."""
    with torch._dynamo.config.patch(allow_rnn=True):
        return _export_to_torch_ir(model, tuple(inputs), _log_export_usage=False)


def export(
    function: Callable[..., Sequence[Any]],
    arguments: Sequence[torch.Tensor],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> GraphModule:
    """A functional graph of ATen ops of `function(*arguments)`, which may call autograd.

    It mutates no argument, and its results share no memory with them. Values are not read: what
    raises where a factorization failed is left out.
    """
    # Fake tensors of one mode: on real ones, AOTAutograd would run the function.
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = tuple(mode.from_tensor(argument.detach()) for argument in arguments)
    table = dict(decompositions)
    exported = aot_export_joint_simple(function, fakes, trace_joint=False, decompositions=table)
    _drop_checks(exported.graph)
    return cast(GraphModule, exported)


def _drop_checks(graph: torch.fx.Graph) -> None:
    """Drop checks of factorizations, and the token that is their first argument and result."""
    check = torch.ops.aten._linalg_check_errors.default
    effects = graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects)
    if not effects or any(node.args[1] is not check for node in effects):
        return
    for node in effects:
        for token in list(node.users):
            edit.substitute(token, node.args[0])
        graph.erase_node(node)
    token, *results = fx.results(graph)
    graph.output_node().args = (tuple(results),)
    graph.erase_node(token)


@optional(())
def _argument_names(module: GraphModule) -> tuple[str, ...]:
    """Dynamo's source expressions: L['x'], L['self']._modules['fc'], L['x'] dimension 0, ..."""
    names = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            source = getattr(node, "_dynamo_source", None)
            name = getattr(source, "name", None)
            expression = str(name() if callable(name) else name or node.name)
            names.append(_SIZE.sub(r" dimension \1", expression))
    return tuple(names)
