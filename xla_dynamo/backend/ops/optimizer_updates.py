"""An optimizer's step as one op of a trace, in whose place passes/joint puts what it does.

The functions are known by name, as long as they live: `capture.parameter_updates` makes them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from .registration import op

T = TypeVar("T")


@dataclass(frozen=True)
class Update:
    """How one parameter is updated; positions are those among the op's lists.

    function: of the parameter, its gradient, its state and its learning rate, if it has one: new
        tensors for the parameter and its state. Equal for those that have equal hyperparameters.
    """

    function: Callable[..., list[Tensor]]
    parameter: int
    state: range
    rate: int | None

    def operands(
        self,
        parameters: Sequence[T],
        gradients: Sequence[T],
        state: Sequence[T],
        rates: Sequence[T],
    ) -> list[T]:
        """What its function takes, of the op's lists: tensors, or nodes of a graph."""
        own = [parameters[self.parameter], gradients[self.parameter]]
        own += [state[i] for i in self.state]
        return own if self.rate is None else [*own, rates[self.rate]]


@dataclass(frozen=True, eq=False)
class Updates:
    """How each parameter is updated."""

    each: tuple[Update, ...]


known: weakref.WeakValueDictionary[str, Updates] = weakref.WeakValueDictionary()


def _fake(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    state: Sequence[Tensor],
    rates: Sequence[Tensor],
    name: str,
) -> list[Tensor]:
    return [torch.empty_like(x) for x in (*parameters, *state)]


@op(fake=_fake)
def optimizer_updates(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    state: Sequence[Tensor],
    rates: Sequence[Tensor],
    name: str,
) -> list[Tensor]:
    """New parameters, then their new state."""
    results = [*parameters, *state]
    for update in known[name].each:
        operands = update.operands(parameters, gradients, state, rates)
        results[update.parameter], *rest = update.function(*operands)
        for i, value in zip(update.state, rest, strict=True):
            results[len(parameters) + i] = value
    return results
