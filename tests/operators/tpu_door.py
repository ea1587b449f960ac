"""A door for TPUs on machines without one: libtpu compiles each program, the CPU's client runs it.

Graphs are lowered as for a TPU, so what the CPU computes are the numbers of those lowerings, in the
CPU's arithmetic; a program that calls what only libtpu has is lowered for the CPU once more.
Attention is XLA's: a CPU cannot run the kernels. The process that opens this door lowers for TPUs
from then on.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

from torch.fx import Graph

from tests.like_eager.compiled import door
from xla_dynamo.backend.executable import compile as compiling
from xla_dynamo.backend.lowering.lower import Lowered
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.runtime import pjrt, topology

TOPOLOGY = "v5e:2x2"
# At "highest", which a TPU makes six products of, libtpu takes some 10 seconds a convolution.
_OPTIONS = {"attention": "xla", "matmul_precision": "medium"}
_OF_LIBTPU = re.compile(r"custom_call @(LuDecomposition|Qr|Eigh|ProductOfElementaryHouseholder)")


def tpu(function: Any) -> Any:
    """`function` compiled for a TPU, and run on the CPU."""
    _redirect()
    return door(fullgraph=True, options=_OPTIONS)(function)


@functools.cache
def _redirect() -> None:
    lower_graph = compiling.lower_graph

    def lower_and_compile(graph: Graph, target: Target, **details: Any) -> Lowered:
        lowered = lower_graph(graph, target, **details)
        topology.compile(lowered.module, TOPOLOGY)
        if _OF_LIBTPU.search(lowered.stablehlo):
            return lower_graph(graph, replace(target, platform="cpu"), **details)
        return lowered

    compiling.lower_graph = lower_and_compile
    pjrt.platform = lambda of: "tpu"
