"""Every graph pass, in order, by stage; and which of them each way in runs.

    torch.compile --DYNAMO--> AOTAutograd --JOINT--> partitioner --ATEN--> sizes --STATIC-->
    split at what XLA cannot take --LOWERING--> StableHLO

`run` runs a stage. XLA_DYNAMO_DUMP writes the graph after each pass that changed it, `passes()`
counts and times them, XLA_DYNAMO_STRICT=1 verifies the graph after each (`passes/verify.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from torch.fx import Graph, GraphModule

from . import metrics
from .passes import verify
from .passes.aten.dedupe_outputs import dedupe_outputs
from .passes.aten.lift import lift_constants, lift_rng_keys
from .passes.aten.masked_sums import mask_sums
from .passes.aten.pad_dynamic_shapes import pad_dynamic_shapes
from .passes.contract import Context, Pass, Stage, WayIn
from .passes.dynamo.attention_dropout import keep_attention_dropout
from .passes.dynamo.exchange_calls import keep_one_hot_layout, mend_margin_losses
from .passes.dynamo.flex_attention import expand_flex_attention
from .passes.dynamo.fuse_addcdiv import fuse_addcdiv
from .passes.dynamo.gpu_kernels import avoid_gpu_kernels
from .passes.dynamo.keep_interpolate import keep_interpolate
from .passes.dynamo.nansum_dims import drop_empty_nansum_dims
from .passes.dynamo.rnn_layers import use_rnn_layers
from .passes.joint.attention_backward import save_attention_weights
from .passes.joint.channels_last import lay_images_out
from .passes.joint.dynamic_slice import keep_dynamic_slice
from .passes.joint.even_bags import look_up_even_bags
from .passes.joint.expand_updates import expand_updates
from .passes.joint.functionalize_rng import functionalize_rng
from .passes.joint.log_softmax_backward import recompute_log_softmax
from .passes.joint.masks_of_results import look_at_results
from .passes.joint.merge_equal import merge_equal
from .passes.joint.numbers_minus import subtract_from_numbers
from .passes.joint.permutations import compose_permutations
from .passes.joint.save_for_backward import save_compared, save_mutated_inputs
from .passes.joint.symbolic_indices import keep_symbolic_indices
from .passes.lowering.casts_beside_views import view_narrow_tensors
from .passes.lowering.casts_of_matrices import cast_as_matrices
from .passes.lowering.contract_rows import contract_rows
from .passes.lowering.order_collectives import order_collectives
from .passes.lowering.results_of_matrices import return_matrices_as_rows
from .passes.lowering.reverse_cumsum import join_reverse_cumsum
from .passes.lowering.separate_all_reduces import separate_all_reduces
from .passes.lowering.transposed_factors import transpose_before_products
from .passes.lowering.unflatten_matmul import unflatten_matmul
from .passes.lowering.vector_products import turn_vector_products
from .passes.lowering.wide_sums import sum_by_products
from .passes.numerics.exact_division import keep_exact_division
from .passes.numerics.inplace_hazards import materialize_inplace_sources
from .passes.numerics.nan_of_zero_over_zero import keep_nan_of_zero_over_zero
from .passes.numerics.no_reassociation import forbid_reassociation
from .passes.static.activations import join_activations
from .passes.static.as_strided import resolve_as_strided
from .passes.static.decompose_unsupported import decompose_unsupported
from .passes.static.eager_layout import restore_eager_layout
from .passes.static.pad_sizes import pad_sizes
from .passes.static.piece_gradients import join_piece_gradients
from .passes.static.specialize import specialize

PIPELINE: Mapping[Stage, tuple[Pass, ...]] = {
    Stage.DYNAMO: (
        use_rnn_layers,  # nn.LSTM, GRU, RNN as one op a layer
        drop_empty_nansum_dims,
        keep_interpolate,  # one op, which AOTAutograd would decompose into gathers
        keep_one_hot_layout,
        mend_margin_losses,
        expand_flex_attention,
        avoid_gpu_kernels,  # attention and cells of tensors on CUDA as on a CPU
        keep_attention_dropout,  # on a TPU: a kernel, of long sequences
        fuse_addcdiv,  # one op again where Dynamo made three
    ),
    Stage.JOINT: (
        expand_updates,  # the step of training_step's optimizer
        keep_dynamic_slice,  # x.narrow(dim, start, length) of a start that is a tensor
        keep_symbolic_indices,  # an int that only selects stays an argument
        look_up_even_bags,  # an embedding bag of a table of indices needs no offsets
        recompute_log_softmax,  # backward gets two numbers a row instead of the output
        save_attention_weights,  # backward gets the weights where memory allows
        functionalize_rng,  # random ops become functions of a key
        look_at_results,  # backward needs no masks of what activations take, on the CPU
        compose_permutations,  # backward permutes what is saved
        merge_equal,
        save_mutated_inputs,
        save_compared,
        subtract_from_numbers,
        lay_images_out,  # on the CPU, between PyTorch's convolutions
    ),
    Stage.ATEN: (
        lift_constants,
        lift_rng_keys,
        dedupe_outputs,
        mask_sums,  # sum(x[mask]) needs no data-dependent shape
        pad_dynamic_shapes,  # nonzero, unique, ...: padded results and a count
    ),
    Stage.STATIC: (
        pad_sizes,  # symbolic sizes become those of buckets: options={"bucket": ...}
        specialize,  # symbolic sizes become numbers
        restore_eager_layout,
        resolve_as_strided,
        decompose_unsupported,
        join_piece_gradients,  # on the CPU
        join_activations,  # between PyTorch's kernels
    ),
    Stage.LOWERING: (
        join_reverse_cumsum,
        sum_by_products,  # on the CPU, as the next ones see what it divides
        forbid_reassociation,
        keep_nan_of_zero_over_zero,
        keep_exact_division,
        view_narrow_tensors,  # not on the CPU
        cast_as_matrices,  # on a TPU only
        return_matrices_as_rows,  # likewise
        turn_vector_products,  # on the CPU
        unflatten_matmul,
        contract_rows,  # not on the CPU
        transpose_before_products,  # on the CPU
        materialize_inplace_sources,  # the cure of a miscompile: always on
        separate_all_reduces,
        order_collectives,  # on the CPU: programs of processes differ, their collectives must not
    ),
}

# What numerics="xla" leaves out: XLA may then treat floats as if they were real numbers.
EXACTNESS: frozenset[Pass] = frozenset(
    {forbid_reassociation, keep_nan_of_zero_over_zero, keep_exact_division}
)

_NO_DYNAMO = "the graph has been through AOTAutograd or was recorded: there are no torch functions"
_NO_PARTITION = "forward and backward stay one program: nothing is saved between them"
_RECORDED = "ops are recorded one by one, and this is done where they are"

# The passes that a way in leaves out, and why; it runs all others.
OMITTED: Mapping[WayIn, Mapping[Pass, str]] = {
    WayIn.COMPILE: {},
    WayIn.LAZY: {
        **dict.fromkeys(PIPELINE[Stage.DYNAMO], _NO_DYNAMO),
        keep_dynamic_slice: "reading a start is a barrier: it is a number when the slice is made",
        keep_symbolic_indices: "integers are numbers or inputs when they are recorded",
        functionalize_rng: _RECORDED,
        look_at_results: _NO_PARTITION,
        compose_permutations: _NO_PARTITION,
        merge_equal: _NO_PARTITION,
        save_mutated_inputs: _NO_PARTITION,
        save_compared: _NO_PARTITION,
        lift_constants: "a trace has no attributes: constants are inputs",
        lift_rng_keys: "seeds are inputs of the trace",
        dedupe_outputs: "a trace returns each of its values once",
        mask_sums: "data-dependent shapes are barriers: their sizes are numbers",
        pad_dynamic_shapes: _RECORDED,
        specialize: "sizes are numbers from the start, and no identities are recorded",
        restore_eager_layout: _RECORDED,
        resolve_as_strided: _RECORDED,
    },
    WayIn.EXPORT: {
        **dict.fromkeys(PIPELINE[Stage.DYNAMO], _NO_DYNAMO),
        lift_constants: "the exported program has lifted them",
        dedupe_outputs: "the module returns what the exported program returns, in its order",
        pad_dynamic_shapes: "no host reads a count between two parts of one module",
    },
    WayIn.BRIDGE: {},
    WayIn.TPU_COST: {
        look_at_results: _NO_PARTITION,
        compose_permutations: _NO_PARTITION,
        merge_equal: _NO_PARTITION,
        save_mutated_inputs: _NO_PARTITION,
        save_compared: _NO_PARTITION,
        save_attention_weights: _NO_PARTITION,
        dedupe_outputs: "new parameters, buffers and momenta are distinct results",
    },
}


def passes_of(stage: Stage, way_in: WayIn, numerics: str = "eager") -> tuple[Pass, ...]:
    """The passes of a stage that run on a graph that came by `way_in`, in order."""
    omitted = OMITTED[way_in]
    return tuple(
        each
        for each in PIPELINE[stage]
        if each not in omitted and (numerics == "eager" or each not in EXACTNESS)
    )


def run(stage: Stage, graph: Graph | GraphModule, context: Context) -> bool:
    """Run a stage on `graph`, in place; whether anything changed.

    Of a GraphModule of Dynamo's, subgraphs are visited too (the body of a checkpoint, say). Those
    of later stages belong to higher-order ops, which run in eager.

    Raises:
        UnsupportedOp: what a pass refuses.
    """
    changed = False
    chosen = passes_of(stage, context.way_in, context.target.numerics)
    for part in _graphs(stage, graph):
        before = verify.snapshot(part)
        for each in chosen:
            start = time.perf_counter()
            edited = each(part, context)
            metrics.record_pass(each.__name__, edited, time.perf_counter() - start)
            changed |= edited
            if edited:
                metrics.dump_pass(context.name, stage.value, each.__name__, part)
                before = verify.after_pass(part, stage, each.__name__, before)
        verify.after_stage(part, stage)
    if changed and isinstance(graph, GraphModule):
        for module in _modules(stage, graph):
            module.recompile()
    return changed


def _graphs(stage: Stage, graph: Graph | GraphModule) -> Iterator[Graph]:
    if isinstance(graph, Graph):
        yield graph
    else:
        yield from (module.graph for module in _modules(stage, graph))


def _modules(stage: Stage, module: GraphModule) -> Iterator[GraphModule]:
    if stage is not Stage.DYNAMO:
        yield module
        return
    yield from (each for each in module.modules() if isinstance(each, GraphModule))
