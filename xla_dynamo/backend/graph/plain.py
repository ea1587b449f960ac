"""Plain values as JSON, and back: numbers, ops, dtypes, and lists, tuples and dicts of such.

What JSON has no form for is a dict of one entry, whose key says what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from . import host_ops
from .text import is_of_every_process

_NAMED = (torch.dtype, torch.layout, torch.memory_format)


class NotPlain(Exception):
    """A value that another process could not make again."""


def to_json(value: Any, number: Mapping[Node, int] = MappingProxyType({})) -> Any:
    """The JSON of a value; nodes by their numbers.

    Raises:
        NotPlain.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Node):
        return {"node": number[value]}
    if isinstance(value, tuple):
        return {"tuple": [to_json(each, number) for each in value]}
    if isinstance(value, list):
        return [to_json(each, number) for each in value]
    if isinstance(value, dict):
        return {"dict": [[to_json(each, number) for each in item] for item in value.items()]}
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch._ops.OpOverload) and is_of_every_process(value):
        return {"op": str(value)}
    if value is host_ops.strided:
        return {"host": "strided"}
    raise NotPlain(f"{type(value).__name__} {value}")


def of_json(told: Any, nodes: Sequence[Any] = ()) -> Any:
    """The inverse of `to_json`; nodes: what stands for those, by number."""
    if isinstance(told, list):
        return [of_json(each, nodes) for each in told]
    if not isinstance(told, dict):
        return told
    [(kind, inner)] = told.items()
    if kind == "node":
        return nodes[inner]
    if kind == "tuple":
        return tuple([of_json(each, nodes) for each in inner])
    if kind == "dict":
        return {of_json(key, nodes): of_json(each, nodes) for key, each in inner}
    if kind == "device":
        return torch.device(inner)
    return attrgetter(inner)({"torch": torch, "op": torch.ops, "host": host_ops}[kind])
