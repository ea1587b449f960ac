"""Attach to an error the node that raised it, for a caller that can go on without that node.

The caller numbers the nodes of its graph; nodes that a pass makes of another one share its number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.fx import Node

_KEY = "_xla_dynamo_culprit"


def number(nodes: Iterable[Node]) -> None:
    """Number nodes by position; the number of a node is attached to its errors."""
    for position, node in enumerate(nodes):
        node.meta["number"] = position


def blame(error: Exception, culprit: Any) -> None:
    """Attach to `error` the number of the node that raised it, or another name of an op."""
    if culprit is not None:
        error.__dict__[_KEY] = culprit


def take(error: Exception) -> Any:
    """Detach and return what was attached to `error`, or None."""
    return error.__dict__.pop(_KEY, None)
