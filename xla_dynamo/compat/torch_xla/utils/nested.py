"""Visit or replace parts of nested data, as torch.utils._pytree does, but also inside objects.

Parts are those of dicts (also of subclasses), lists, tuples, named tuples, sets, what a DataWrapper
names, and, unless `objects` is False, attributes of objects. A part that occurs twice is replaced
once: shared parts stay shared, and cycles stay cycles.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
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
    _visit(value, select_fn, fn, lambda part: None, objects)


def for_each_instance_rewrite(
    value: Any, select_fn: Select, fn: Callable[[Any], Any], *, objects: bool = True
) -> Any:
    """A copy of `value` with `fn(part)` for each part that `select_fn` picks."""
    return _rewrite(value, select_fn, fn, objects, {}, [])


def _rewrite(
    value: Any,
    select: Select,
    fn: Callable[[Any], Any],
    objects: bool,
    stands_for: dict[int, Any],
    parts: list[Any],
) -> Any:
    """`stands_for`: what deepcopy takes for a part, by its id; `parts` keeps those ids good."""

    def replaced(part: Any) -> bool:
        return select(part) or isinstance(part, DataWrapper)

    def replace(part: Any) -> None:
        if id(part) in stands_for:
            return
        parts.append(part)
        if select(part):
            stands_for[id(part)] = fn(part)
        else:
            tensors = _rewrite(part.get_tensors(), select, fn, objects, stands_for, parts)
            stands_for[id(part)] = part.from_tensors(tensors)

    def keep(part: Any) -> None:
        parts.append(part)
        stands_for[id(part)] = part

    _visit(value, replaced, replace, keep, objects)
    return copy.deepcopy(value, stands_for)


def _visit(
    value: Any,
    select: Select,
    fn: Callable[[Any], Any],
    at_leaf: Callable[[Any], Any],
    objects: bool,
) -> None:
    """Call `fn` on each part that `select` picks, `at_leaf` on others without parts, once each."""
    seen: dict[int, Any] = {}  # the parts too: an id is good while its object lives

    def visit(part: Any) -> None:
        if id(part) in seen:
            return
        seen[id(part)] = part
        if select(part):
            fn(part)
        elif (inner := _parts(part, objects)) is None:
            at_leaf(part)
        else:
            for each in inner:
                visit(each)

    visit(value)


def _parts(value: Any, objects: bool) -> list[Any] | None:
    """What a container or an object holds; None of anything else."""
    if isinstance(value, DataWrapper):
        return value.get_tensors()
    opaque = isinstance(value, _OPAQUE) or callable(value) or not hasattr(value, "__dict__")
    attributes = [] if opaque else [*vars(value).values()]
    if isinstance(value, dict):
        return [item for pair in value.items() for item in pair] + attributes
    if isinstance(value, (list, tuple, set, frozenset)):
        return [*value, *attributes]
    return attributes if objects and not opaque else None
