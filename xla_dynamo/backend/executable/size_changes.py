"""What is said of sizes that change: why a program was compiled, and what to do about so many.

And which are no numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph

from xla_dynamo.backend import metrics
from xla_dynamo.backend.buckets import proposal
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.bookkeeping import optional
from xla_dynamo.errors import UnsupportedOp

from .request import Request

Key = tuple[int, ...]


@optional("not known")
def changed(names: Sequence[str], key: Key, others: Collection[Key]) -> str:
    """Why a program is compiled: how its sizes differ from the most similar of `others`.

    names: what has the size, as the user calls it.
    """

    def distance(old: Key) -> int:
        return sum(a != b for a, b in zip(old, key, strict=True))

    changes = [
        f"{name} changed from {old} to {new}"
        for name, old, new in zip(names, min(others, key=distance), key, strict=True)
        if old != new
    ]
    return ", ".join(changes) or "the executable had been evicted"


@optional(None)
def warn(graph: Graph, request: Request, programs: int, last: str, keys: Collection[Key]) -> None:
    """Say once, for the graphs of a capture, that they keep being compiled.

    last: why the last of `programs` was. keys: the sizes of those that are not padded.
    """
    remedy = "choose larger buckets, docs/shapes.md says how"
    if request.options.bucket is None:
        remedy = f"{proposal(keys)}. Otherwise pad that argument yourself"
    metrics.warn_once(
        ("recompile", request.capture),
        f"{request.name} (first op at {first_location(graph)}) was compiled {programs} times. "
        f"Last: {last}. XLA needs one executable per shape: {remedy}, or drop the last short batch "
        "(drop_last=True).",
        metrics.RecompileWarning,
    )


def refuse_ragged(
    graph: Graph, request: Request, names: Sequence[str], arguments: Sequence[Any]
) -> None:
    """Raise for a size that is no number: that of a nested tensor, which Dynamo passes."""
    for name, argument in zip(names, arguments, strict=False):
        if isinstance(argument, torch.SymInt):
            location = first_location(graph)
            reason = "It is given a jagged nested tensor, whose size is no number."
            remedy = (
                "Pass values() and offsets() instead, and make the nested tensor inside, by "
                "torch.nested.nested_tensor_from_jagged(values, offsets)."
            )
            raise UnsupportedOp(
                f"{request.name} (first op at {location}) cannot be compiled for XLA. "
                f"{reason} {remedy} (argument {name})",
                location=str(location),
                reason=reason,
                remedy=remedy,
            )
