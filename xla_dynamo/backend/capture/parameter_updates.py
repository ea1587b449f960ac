"""An optimizer's step as one op, where parameters are updated one by one.

PyTorch's own optimizers are known to do so: no parameter sees another's gradient or state. Their
Python code, traced for each of a hundred parameters, was half of the time to a first step. What
somebody else wrote may couple parameters, and is traced whole.
"""

from __future__ import annotations

import collections
import copy
import inspect
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from xla_dynamo.backend.ops import optimizer_updates
from xla_dynamo.backend.ops.optimizer_updates import Update, Updates

from . import optimizer_step
from .optimizer_step import Place

aten = torch.ops.aten
_ONE_BY_ONE = frozenset(
    {
        torch.optim.Adadelta,
        torch.optim.Adagrad,
        torch.optim.Adam,
        torch.optim.Adamax,
        torch.optim.AdamW,
        torch.optim.ASGD,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.SGD,
    }
)


def trace(
    optimizer: Optimizer,
    parameters: Mapping[int, Tensor],
    gradients: Mapping[int, Tensor | None],
    state: Mapping[Place, Tensor],
    rates: Sequence[Tensor],
) -> Updates | None:
    """Do a step by one op, in place; None if it has to be traced whole, and nothing was done.

    What it returns must live until the op is expanded.
    """
    if not _is_one_by_one(optimizer):
        return None
    having = {i: gradient for i, gradient in gradients.items() if gradient is not None}
    updated, given = [*having], [*having.values()]
    places = {i: [place for place in state if place.parameter == i] for i in updated}
    tensors = [parameters[i] for i in updated]
    flat = [place for i in updated for place in places[i]]
    held = [state[place] for place in flat]
    if not updated or not all(map(_is_plain, (*tensors, *given, *held))):
        return None
    updates = Updates(tuple(_updates(optimizer, updated, places)))
    name = uuid.uuid4().hex
    optimizer_updates.known[name] = updates
    with torch.no_grad():
        new = torch.ops.xla_dynamo.optimizer_updates(tensors, given, held, list(rates), name)
        aten._foreach_copy_.default([*tensors, *held], new)
    return updates


def _is_one_by_one(optimizer: Optimizer) -> bool:
    kind: Any = type(optimizer)
    own = kind in _ONE_BY_ONE and inspect.unwrap(kind.step).__module__.startswith("torch.optim.")
    tensors = [
        isinstance(value, Tensor)
        for group in optimizer.param_groups
        for name, held in group.items()
        if name not in ("params", "lr", "initial_lr")
        for value in pytree.tree_leaves(held)
    ]
    numbers = [
        not isinstance(value, Tensor) and value is not None
        for held in optimizer.state.values()
        for value in held.values()
    ]
    return own and not any(tensors) and not any(numbers)


def _is_plain(tensor: Tensor) -> bool:
    sizes = all(type(size) is int for size in tensor.shape)
    return tensor.layout is torch.strided and tensor.is_floating_point() and sizes


def _updates(
    optimizer: Optimizer, updated: Sequence[int], places: Mapping[int, Sequence[Place]]
) -> list[Update]:
    found, functions = {}, {}
    number = rate = start = 0
    for group in optimizer.param_groups:
        is_rated = optimizer_step.is_rate_given(optimizer, group)
        for _ in group["params"]:
            found[number] = group, rate if is_rated else None
            number += 1
        rate += is_rated
    result = []
    for at, i in enumerate(updated):
        group, of_rate = found[i]
        names = tuple(place.name for place in places[i])
        key = id(group), names
        if key not in functions:
            functions[key] = _function(optimizer, group, names, of_rate is not None)
        result.append(Update(functions[key], at, range(start, start + len(names)), of_rate))
        start += len(names)
    return result


def _function(
    optimizer: Optimizer, group: Mapping[str, Any], names: Sequence[str], is_rated: bool
) -> Callable[..., list[Tensor]]:
    """How a parameter of a group is updated; it holds none of the optimizer's tensors."""
    alone = copy.copy(optimizer)
    alone.state = collections.defaultdict(dict)
    alone.param_groups = [{**group, "params": [torch.empty(0, device="cpu")]}]
    if is_rated:
        alone.param_groups[0]["lr"] = None

    def update(parameter: Tensor, gradient: Tensor, *rest: Tensor) -> list[Tensor]:
        state = {Place(0, name): value.clone() for name, value in zip(names, rest, strict=False)}
        new = parameter.clone()
        rates = rest[len(names) :]
        optimizer_step.trace(alone, {0: new}, {0: gradient.clone()}, state, rates)
        return [new, *state.values()]

    return torch.func.functionalize(update, remove="mutations")
