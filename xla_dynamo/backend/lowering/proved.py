"""The ops that a platform's compiler is known to take, and those of a graph that it is not.

`proved_tpu.json` has, for each op, the dtypes of its operands and results in programs that libtpu
compiled: those of the operator sweep that the record calls right, and steps of whole models.
`tests/operators/proved.py` makes it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.fx import Graph, Node

from .nodes import is_op, op_of, output_values, tensor_operands

FILES = {"tpu": Path(__file__).with_name("proved_tpu.json")}


def unproved(graph: Graph, platform: str) -> list[Node]:
    """The ops of `graph` that no program of this platform is known to have had in these dtypes.

    Those that none had in any come first.
    """
    known = _proved(platform)
    calls = (node for node in graph.nodes if is_op(node))
    found = [node for node in calls if not dtypes(node) <= known.get(name(node), frozenset())]
    return sorted(found, key=lambda node: name(node) in known)


def name(node: Node) -> str:
    """Of the op that a node is: "aten.add.Tensor"."""
    return str(op_of(node))


def dtypes(node: Node) -> frozenset[str]:
    """Those of its operands and results: "float32", ..."""
    values = [*(operand.meta["val"] for operand in tensor_operands(node)), *output_values(node)]
    found = (value.dtype for value in values if isinstance(value, torch.Tensor))
    return frozenset(str(dtype).removeprefix("torch.") for dtype in found)


@functools.lru_cache(maxsize=8)
def _proved(platform: str) -> Mapping[str, frozenset[str]]:
    """Nothing is known of what has no file."""
    file = FILES.get(platform)
    if file is None:
        return {}
    return {op: frozenset(of.split()) for op, of in json.loads(file.read_text()).items()}
