"""The signature of a pass, a function that edits a graph in place, and the stages of a graph.

Every node of a graph has `meta["val"]`, or in Dynamo's graph `meta["example_value"]`: fake tensors,
numbers, or tuples of them. `graph.edit` gives the nodes that a pass makes the user's line of the
node that they are made for.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.options import Options, convolution_precision
from xla_dynamo.backend.runtime import gpu_order

if TYPE_CHECKING:
    from .padding.plan import PaddedGraph, Plan  # imports sympy


class Stage(enum.Enum):
    """What a graph is made of when a pass sees it.

    DYNAMO: calls of torch functions, as Dynamo captured them; subgraphs are visited too.
    JOINT: functional ATen ops of forward and backward together, or of inference; sizes may be
        symbols.
    ATEN: one graph of those that are compiled; sizes may be symbols.
    STATIC: every size is a number.
    LOWERING: every op can be lowered; what comes out becomes StableHLO.
    """

    DYNAMO = "dynamo"
    JOINT = "joint"
    ATEN = "aten"
    STATIC = "static"
    LOWERING = "lowering"


class WayIn(enum.Enum):
    """How a graph came here.

    COMPILE: torch.compile(backend="xla").
    LAZY: a pending trace of the lazy device.
    EXPORT: an exported program, to StableHLO.
    BRIDGE: a graph that PyTorch's own backend "openxla" hands over.
    TPU_COST: a training step that is compiled for a TPU that is not here.
    """

    COMPILE = "torch.compile"
    LAZY = "lazy device"
    EXPORT = "export to StableHLO"
    BRIDGE = "dynamo bridge"
    TPU_COST = "TPU cost analysis"


@dataclass
class Lifted:
    """What passes took out of a graph; whoever runs the program gives it back.

    constants: tensors that the graph held; they are its arguments after its own.
    keys: how many PRNG keys the graph takes, after the constants.
    outputs: for each result that the graph had, its position among those that it has.
    unsupported: the nodes that cannot be lowered, and why.
    padded: what a program with the sizes of buckets takes and gives.
    """

    constants: list[torch.Tensor] = field(default_factory=list)
    keys: int = 0
    outputs: list[int] = field(default_factory=list)
    unsupported: dict[Node, Any] = field(default_factory=dict)
    padded: PaddedGraph | None = None


@dataclass(frozen=True)
class Context:
    """What passes are told.

    name: of the graph, for dumps and reports.
    way_in: decides which passes run.
    target: platform, precision and numerics that the graph is compiled for.
    forward_outputs: of a joint graph, how many leading results are those of forward.
    arguments: the inputs of a call whose sizes a graph is specialized to; None if none are symbols.
    padding: the sizes of buckets that a graph gets; then `arguments` is None.
    lifted: what passes take out of the graph.
    partitioned: whether the program is split over devices; flattened, a tensor would be gathered.
    """

    name: str
    way_in: WayIn
    target: Target
    forward_outputs: int | None = None
    arguments: Sequence[Any] | None = None
    padding: Plan | None = None
    lifted: Lifted = field(default_factory=Lifted)
    partitioned: bool = False


def target_of(options: Options, platform: str) -> Target:
    """What programs with these options are lowered for on a platform."""
    kernels = options.cpu_kernels if platform == "cpu" else "xla"
    precision, numerics = options.matmul_precision, options.numerics
    convolution = convolution_precision(options, platform)
    attention = options.attention if platform in ("tpu", "cuda") else "auto"
    if platform == "cuda" and not gpu_order.has_attention():
        attention = "xla"
    return Target(
        platform, precision, numerics, kernels, attention, options.random_bits, convolution
    )


# Edits a graph in place; says whether it changed anything.
Pass = Callable[[Graph, Context], bool]
