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
    from . import aot, prng
    from . import options as option_module
    from .attention_weights import save_weights
    from .decompositions import traced_decompositions
    from .dimensions import leave_out_empty_dimensions
    from .eager_strides import keep_one_hot_in_order
    from .log_softmax import save_rows_only
    from .lowering.registry import draws
    from .margin_losses import exchange_margin_losses
    from .narrowing import keep_start_on_device
    from .program import make_program
    from .recurrent import replace_recurrent
    from .resizing import keep_resizing_whole
    from .runtime import pjrt
    from .scaled_updates import restore_scaled_updates

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
        prng.functionalize(graph, draws)

    return aot.compile(
        gm,
        example_inputs,
        compiler=lambda graph, info: make_program(graph, info, chosen),
        decompositions=traced_decompositions(),
        joint_pass=edit,
    )
