"""An error -> the op that raised it, for a caller that can go on without that op.

The caller numbers the nodes of its graph; passes hand numbers on to what they make of a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.fx import Node

_KEY = "_xla_dynamo_culprit"


def number(nodes: Iterable[Node]) -> None:
    """Number nodes by position: a node's number is what is blamed for its errors."""
    for position, node in enumerate(nodes):
        node.meta["number"] = position


def blame(error: Exception, culprit: Any) -> None:
    """Note on `error` who raised it: the number of a node, or what stands for an op elsewhere."""
    if culprit is not None:
        error.__dict__[_KEY] = culprit


def take(error: Exception) -> Any:
    """Who was blamed for `error`, or None; the note is taken off it."""
    return error.__dict__.pop(_KEY, None)
