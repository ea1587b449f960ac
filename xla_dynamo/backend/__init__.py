"""torch.compile(model, backend="xla"): Dynamo's FX graph -> executables on an XLA device.

Dynamo's graph
  -> aot.compile        forward, backward and inference graphs of functional aten ops
  -> program            one executable per combination of sizes; splits at what XLA cannot take
  -> launch             FX -> StableHLO (lowering) -> executable (runtime) -> torch tensors
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule


def xla(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph captured by Dynamo: the `backend="xla"` of torch.compile.

    `options` are the fields of `xla_dynamo.backend.options.Options`.

    Raises:
        OptionError: an unknown option or mode.
        UnsupportedOp: an op cannot be lowered and options={"fallback": "error"} was given.
    """
    # Here, not above: naming the backend must import neither jax nor torch_mlir.
    from . import options as option_module
    from .capture import aot
    from .decompositions.eager_layout import keep_one_hot_in_order
    from .decompositions.margin_losses import exchange_margin_losses
    from .decompositions.table import traced_decompositions
    from .executable.by_shape import make_program
    from .lowering.registry import draws
    from .passes.dynamo.fuse_addcdiv import restore_scaled_updates
    from .passes.dynamo.keep_interpolate import keep_resizing_whole
    from .passes.dynamo.nansum_dims import leave_out_empty_dimensions
    from .passes.dynamo.rnn_layers import replace_recurrent
    from .passes.joint import functionalize_rng
    from .passes.joint.attention_backward import save_weights
    from .passes.joint.dynamic_slice import keep_start_on_device
    from .passes.joint.log_softmax_backward import save_rows_only
    from .runtime import pjrt

    chosen = option_module.parse(options, mode)
    pjrt.device(chosen.platform or pjrt.default_platform())
    replace_recurrent(gm)
    leave_out_empty_dimensions(gm)
    keep_resizing_whole(gm)
    keep_one_hot_in_order(gm)
    exchange_margin_losses(gm)
    restore_scaled_updates(gm)

    def edit(graph: GraphModule) -> None:
        keep_start_on_device(graph)
        save_rows_only(graph)
        save_weights(graph)
        functionalize_rng.functionalize(graph, draws)

    return aot.compile(
        gm,
        example_inputs,
        compiler=lambda graph, info: make_program(graph, info, chosen),
        decompositions=traced_decompositions(),
        joint_pass=edit,
    )
