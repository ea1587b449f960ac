"""Visit or replace parts of nested data, as torch.utils._pytree does, but also inside objects.

Parts are those of dicts (also of subclasses), lists, tuples, named tuples, sets, and, unless
`objects` is False, attributes of objects. A part that occurs twice is replaced once: shared parts
stay shared, and cycles stay cycles.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

Select = Callable[[Any], bool]

# Never looked into: their attributes are not data.
_OPAQUE = (str, bytes, int, float, complex, type(None), type, torch.Tensor)


class DataWrapper:
    """Base of data structures that say themselves which tensors go to the device."""

    def get_tensors(self) -> list[Any]:
        """The CPU tensors to be sent."""
        raise NotImplementedError("The method is missing an implementation")

    def from_tensors(self, tensors: list[Any]) -> Any:
        """What stands for this object on the device, given `get_tensors()` there."""
        raise NotImplementedError("The method is missing an implementation")


def for_each_instance(
    value: Any, select_fn: Select, fn: Callable[[Any], Any], *, objects: bool = True
) -> None:
    """Call `fn` on each part of `value` that `select_fn` picks, once each."""
    seen: dict[int, Any] = {}  # the parts too: an id is good while its object lives

    def visit(part: Any) -> None:
        if id(part) in seen:
            return
        seen[id(part)] = part
        if select_fn(part):
            fn(part)
        else:
            for inner in _parts(part, objects):
                visit(inner)

    visit(value)


def _parts(value: Any, objects: bool) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield item
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif objects and isinstance(value, DataWrapper):
        yield from value.get_tensors()
    elif objects and _has_attributes(value):
        yield from list(vars(value).values())


def _has_attributes(value: Any) -> bool:
    return not isinstance(value, _OPAQUE) and not callable(value) and hasattr(value, "__dict__")


def for_each_instance_rewrite(
    value: Any, select_fn: Select, fn: Callable[[Any], Any], *, objects: bool = True
) -> Any:
    """A copy of `value` with `fn(part)` for each part that `select_fn` picks."""
    return _Rewriter(select_fn, fn, objects).rewrite(value)


class _Rewriter:
    def __init__(self, select: Select, replace: Callable[[Any], Any], objects: bool) -> None:
        self._select = select
        self._objects = objects
        self._replace = replace
        self._done: dict[int, tuple[Any, Any]] = {}  # id -> the part (kept alive), its replacement

    def rewrite(self, value: Any) -> Any:
        if id(value) in self._done:
            return self._done[id(value)][1]
        if self._select(value):
            return self._keep(value, self._replace(value))
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._sequence(value)
        if not self._objects:
            return value
        if isinstance(value, DataWrapper):
            tensors = [self.rewrite(tensor) for tensor in value.get_tensors()]
            return self._keep(value, value.from_tensors(tensors))
        return self._object(value) if _has_attributes(value) else value

    def _keep(self, value: Any, result: Any) -> Any:
        self._done[id(value)] = (value, result)
        return result

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        result = self._keep(value, copy.copy(value))  # default_factory and the like stay
        result.clear()
        for key, item in value.items():
            result[self.rewrite(key)] = self.rewrite(item)
        return result

    def _sequence(self, value: Any) -> Any:
        if type(value) is list:
            result: list[Any] = self._keep(value, [])
            result.extend(self.rewrite(item) for item in value)
            return result
        items = [self.rewrite(item) for item in value]
        if hasattr(value, "_fields"):  # a named tuple
            return self._keep(value, type(value)(*items))
        return self._keep(value, type(value)(items))

    def _object(self, value: Any) -> Any:
        result = self._keep(value, copy.copy(value))
        for name, item in vars(value).items():
            result.__dict__[name] = self.rewrite(item)
        return result
