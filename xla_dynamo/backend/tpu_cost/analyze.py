"""Compile a model's training step for a TPU, on a machine that has none, and tell its costs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from xla_dynamo.backend import options
from xla_dynamo.backend.executable.launch import lower
from xla_dynamo.backend.lowering import Lowered
from xla_dynamo.backend.passes.contract import Context, WayIn, target_of
from xla_dynamo.backend.runtime import pjrt, topology

from . import training_step


def analyze_training_step(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    *,
    topology_name: str = "v5e:2x2",
    matmul_precision: str | None = None,
    numerics: str | None = None,
) -> topology.Analysis:
    """Compile forward, backward and SGD with momentum of `model(*inputs)` for one TPU core.

    `model` returns a scalar loss. Old parameters, buffers and momenta give their memory to the
    new ones. `matmul_precision` ("highest", "high", "medium") defaults to
    torch.get_float32_matmul_precision(), which is "highest" unless set: libtpu then takes some 10
    seconds for each convolution, of JAX's programs too; at "medium" less than one. `numerics`
    ("eager" or "xla") defaults to XLA_DYNAMO_NUMERICS.

    Raises:
        CompileError: the TPU compiler refused the step (out of memory, say).
        DeviceUnavailable: libtpu is missing or does not know the topology.
        UnsupportedOp: an op has no lowering.
    """
    lowered = lower_training_step(
        model, inputs, matmul_precision=matmul_precision, numerics=numerics
    )
    return topology.compile(lowered.module, topology_name)[0]


def lower_training_step(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    *,
    matmul_precision: str | None = None,
    numerics: str | None = None,
) -> Lowered:
    """The step that `analyze_training_step` compiles, as StableHLO for TPUs."""
    pjrt.device("cpu")
    given = {"matmul_precision": matmul_precision, "numerics": numerics}
    chosen = options.parse({k: v for k, v in given.items() if v is not None}, None)
    context = Context("training step", WayIn.TPU_COST, target_of(chosen, "tpu"))
    step = training_step.trace(model, inputs, context)
    return lower(step.graph, context, aliases=step.aliases)
