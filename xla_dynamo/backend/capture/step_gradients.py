"""Gradients before the optimizer's step of a training step: averaged over replicas, then scaled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from xla_dynamo.backend.runtime import job, resident

from . import optimizer_step

Gradients = Mapping[int, Tensor | None]  # by the number of their parameter


@dataclass(frozen=True)
class Changes:
    """What is done to gradients.

    max_norm: as of `torch.nn.utils.clip_grad_norm_`, where they are scaled.
    averaged: whether they are averaged over the replicas that train together.
    """

    max_norm: float | None
    averaged: bool

    def replicas(self, parameters: Sequence[Tensor]) -> int:
        """Over how many replicas gradients of these parameters are averaged."""
        return _replicas_of(parameters) if self.averaged else 1

    def in_trace(
        self, parameters: Mapping[int, Tensor], gradients: Gradients, replicas: int
    ) -> Gradients:
        """The gradients for the step, of parameters and gradients of a trace."""
        gradients = _average(gradients, replicas)
        if self.max_norm is not None:
            optimizer_step.clip(parameters, gradients, self.max_norm)
        return gradients

    @contextlib.contextmanager
    def in_place(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> Iterator[None]:
        """Within, parameters have these gradients, as the step is to see them, as `.grad`."""
        kept = [p.grad for p in parameters]
        given = _average(dict(enumerate(gradients)), self.replicas(parameters))
        try:
            for number, parameter in enumerate(parameters):
                parameter.grad = given[number]
            if self.max_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)
            yield
        finally:
            for parameter, gradient in zip(parameters, kept, strict=True):
                parameter.grad = gradient


def _replicas_of(parameters: Sequence[Tensor]) -> int:
    home, joint = resident.device_of(parameters), job.current()
    if home is not None:
        return resident.RESIDENCIES[home.type].replicas(home)
    return 1 if joint is None else joint.count


def _average(gradients: Gradients, count: int) -> Gradients:
    """New gradients, as those of `xm.reduce_gradients`: the sum over `count` replicas, scaled."""
    held = {number: each for number, each in gradients.items() if each is not None}
    if count == 1 or not held:
        return gradients
    with torch.no_grad():
        given, everyone = [each.detach() for each in held.values()], [*range(count)]
        sums = torch.ops.xla_dynamo.all_reduce(given, "sum", everyone, count)
        means = [each * (1.0 / count) for each in sums]
    return {**gradients, **dict(zip(held, means, strict=True))}
