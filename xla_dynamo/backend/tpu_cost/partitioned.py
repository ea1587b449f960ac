"""Compile a training step that is partitioned over the chips of a TPU slice, and tell its costs."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.experimental import mesh_utils
from torch import Tensor, nn

from xla_dynamo.backend import options
from xla_dynamo.backend.capture import aot
from xla_dynamo.backend.executable import partitioned
from xla_dynamo.backend.executable.compile import lower
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context, WayIn, target_of
from xla_dynamo.backend.runtime import pjrt, shardings, topology
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.shardings import Grid, Sharding
from xla_dynamo.errors import CompileError

from .analyze import trace

# For each dimension of a tensor the axis of the mesh that splits it, or None.
Spec = Sequence[str | None]
_COLLECTIVE = re.compile(
    r"= (?:\([^=]*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\("
)


@dataclass(frozen=True)
class PartitionedStep:
    """What the TPU compiler says of a step over all chips.

    Attributes:
        chip: costs of one chip.
        collectives: how many of each kind its program has, by XLA's name.
        hlo: the program, as text of XLA's HLO.
    """

    chip: topology.Analysis
    collectives: Mapping[str, int]
    hlo: str


def analyze_partitioned_step(
    model: nn.Module,
    inputs: Sequence[Tensor],
    *,
    mesh: Mapping[str, int],
    parameters: Callable[[str, Tensor], Spec],
    batch: Spec,
    topology_name: str = "v5e:4x4",
    matmul_precision: str | None = None,
) -> PartitionedStep:
    """Compile forward, backward and SGD with momentum of `model(*inputs)`, which gives the loss.

    mesh: all chips, by the names of axes. parameters: how each is split, by its name and itself;
    its momentum is split alike. batch: how the inputs are.

    Raises:
        CompileError: the mesh has not all chips, the step is not one program, or the TPU compiler
            refused it (out of memory, say).
        DeviceUnavailable: libtpu is missing or does not know the topology.
        UnsupportedOp: an op has no lowering.
    """
    pjrt.device("cpu")
    chips = topology.topology_devices(topology_name)
    if math.prod(mesh.values()) != len(chips):
        raise CompileError(f"the mesh {dict(mesh)} has not the {len(chips)} of {topology_name}")
    given = {} if matmul_precision is None else {"matmul_precision": matmul_precision}
    context = Context(
        "partitioned step",
        WayIn.TPU_COST,
        target_of(options.parse(given, None), "tpu"),
        partitioned=True,
    )
    graph, aliases = trace(model, inputs, context)
    grid = Grid(tuple(mesh.values()), tuple(mesh), tuple(range(len(chips))))
    placed = mesh_utils.create_device_mesh(grid.shape, chips, allow_split_physical_axes=True)
    splits = _splits(model, inputs, grid, parameters, batch)
    assert len(splits) == len(fx.placeholders(graph))
    on = Partitions(tuple(placed.reshape(-1)), tuple(splits))
    on = partitioned.with_results(graph, on, aliases)
    partitioned.pad(graph, on)
    lowered = lower(graph, context, aliases=aliases, shardings=partitioned.attributes(on))
    try:
        executable = pjrt.compile_only(lowered.module, on)
    except Exception as error:
        raise CompileError(f"the TPU compiler refused the program: {error}") from error
    hlo = "\n".join(module.to_string() for module in executable.hlo_modules())
    memory = executable.get_compiled_memory_stats()
    chip = topology.analyze(executable.cost_analysis(), memory, hlo)
    return PartitionedStep(chip, collections.Counter(_COLLECTIVE.findall(hlo)), hlo)


def _splits(
    model: nn.Module,
    inputs: Sequence[Tensor],
    grid: Grid,
    parameters: Callable[[str, Tensor], Spec],
    batch: Spec,
) -> list[Sharding]:
    """Those of the arguments of `trace`'s graph: parameters, buffers, momenta and inputs."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    captured: Any = aot.capture_module(model, tuple(inputs))
    own = list(dict(captured.named_parameters()).values())
    of_parameters = [_split(grid, parameters(names[id(p)], p)) for p in own]
    buffers = [shardings.replicated(grid, b.dim()) for b in dict(captured.named_buffers()).values()]
    of_inputs = [_split(grid, (*batch, *[None] * (t.dim() - len(batch)))) for t in inputs]
    return [*of_parameters, *buffers, *of_parameters, *of_inputs]


def _split(grid: Grid, spec: Spec) -> Sharding:
    return Sharding(grid, tuple(() if axis is None else (grid.names.index(axis),) for axis in spec))
