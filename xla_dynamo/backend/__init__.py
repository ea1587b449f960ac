"""torch.compile(model, backend="xla"): Dynamo's FX graph -> executables on an XLA device.

capture/      Dynamo's graph -> functional graphs of ATen ops for forward, backward, inference
pipeline.py   every graph pass, in order; passes/ has them by stage
executable/   one executable per combination of sizes, split at what XLA cannot take; launching
lowering/     FX graph -> StableHLO, by torch-mlir and JAX rules
runtime/      StableHLO -> PJRT executables; buffers, disk cache
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule

from xla_dynamo import versions


def _xla(
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
        InstallationError: a package that this needs is missing or too old.
    """
    # Here, not above: naming the backend must import neither Dynamo nor jax nor torch_mlir.
    from . import observers
    from .capture import own_errors

    if observers.asked():
        from xla_dynamo.reporting import session

        session.begin_if_asked()
    with own_errors.passing_through("xla", sys._getframe()):
        return _compiled(gm, example_inputs, options, mode)


def _compiled(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None,
    mode: str | None,
) -> Callable[..., Any]:
    versions.require()
    from . import options as option_module
    from . import pipeline
    from .capture import aot
    from .decompositions.table import traced_decompositions
    from .executable import known, made_for
    from .passes.contract import Context, Stage, WayIn, target_of
    from .runtime import pjrt
    from .runtime.platforms import default_platform

    chosen = option_module.parse(options, mode)
    device = pjrt.device(chosen.platform or default_platform())
    name, target = aot.capture_name(), target_of(chosen, pjrt.platform(device))
    pipeline.run(Stage.DYNAMO, gm, Context(f"{name} dynamo", WayIn.COMPILE, target))

    def edit_joint(graph: GraphModule, forward_outputs: int | None) -> None:
        context = Context(f"{name} joint", WayIn.COMPILE, target, forward_outputs)
        pipeline.run(Stage.JOINT, graph, context)

    return aot.compile(
        gm,
        example_inputs,
        compiler=made_for.current(chosen),
        decompositions=traced_decompositions(),
        joint_pass=edit_joint,
        cache_key=known.key_of(["autograd"], chosen, device),
    )


_xla.__name__ = _xla.__qualname__ = "xla"
if TYPE_CHECKING:
    xla = _xla


def __getattr__(name: str) -> Any:
    """`xla`: whoever asks for it, PyTorch or a user, is about to run Dynamo."""
    if name != "xla":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .capture import recurrent_modules

    recurrent_modules.allow(_xla)
    globals()["xla"] = _xla
    return _xla
