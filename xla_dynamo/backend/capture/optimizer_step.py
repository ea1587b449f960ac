"""An optimizer's step as a function of tensors: parameters, gradients, state, learning rates.

PyTorch's own code runs, on a copy of the optimizer that holds the tensors of a trace, so any
optimizer written in tensor operations will do. What a step counts, and learning rates, are tensors
of float64, as the Python numbers of eager's step are.

Private API of PyTorch met here, seen on torch 2.9 and 2.13: Optimizer._init_group, the hooks of a
step, LRScheduler's `_opt_called`, torch.compiler._is_compiling_flag.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from xla_dynamo.errors import OptionError

_INSTEAD = "Compile the model with torch.compile, and call the optimizer, instead."
Hyperparameters = tuple[tuple[tuple[str, Any], ...], ...]


@dataclass(frozen=True)
class Place:
    """Where a tensor of an optimizer's state is: the number of its parameter, and its name."""

    parameter: int
    name: str


def check(optimizer: Optimizer) -> None:
    """Refuse what is more than a function of tensors.

    Raises:
        OptionError: its step takes a closure, or has hooks.
    """
    kind = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise OptionError(
            f"{kind} evaluates the loss several times a step, so that is no program. {_INSTEAD}"
        )
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if hooks:
        raise OptionError(
            f"The step of this {kind} has hooks, which a program cannot call. {_INSTEAD}"
        )


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All of its parameters, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def begin(optimizer: Optimizer) -> bool:
    """Make the state that the first step begins with; whether that is known without a step."""
    if type(optimizer).__module__.split(".")[:2] != ["torch", "optim"]:
        return bool(optimizer.state)
    for group in optimizer.param_groups:
        new = [p for p in group["params"] if p.requires_grad and not optimizer.state.get(p)]
        if new and group.get("momentum") and group.get("dampening"):
            return False  # the first momentum is the gradient, the later ones are dampened
        for parameter in new:
            _begin(optimizer, group, parameter)
    return True


def _begin(optimizer: Optimizer, group: Mapping[str, Any], parameter: Tensor) -> None:
    lists = len(inspect.signature(optimizer._init_group).parameters) - 2  # type: ignore[attr-defined]
    alone = {**group, "params": [parameter]}
    kept = parameter.grad
    zero = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
    parameter.grad = zero.expand(parameter.shape)  # what has no gradient gets no state
    try:
        optimizer._init_group(alone, [], *[[] for _ in range(lists)])  # type: ignore[attr-defined]
    finally:
        parameter.grad = kept
    if isinstance(optimizer, torch.optim.SGD) and group["momentum"]:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter).detach()


def bring_counts(optimizer: Optimizer) -> None:
    """Have what steps count beside the parameters, as `capturable=True` does.

    Optimizers keep it on the CPU, and a program would take it from there and back at each step.
    """
    for parameter in parameters_of(optimizer):
        own = optimizer.state.get(parameter, {})
        count = own.get("step")
        if isinstance(count, Tensor) and count.device != parameter.device:
            own["step"] = count.to(parameter.device)


def places(optimizer: Optimizer) -> list[Place]:
    """The tensors of its state."""
    return [
        Place(number, name)
        for number, parameter in enumerate(parameters_of(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    ]


def rates(optimizer: Optimizer) -> list[Any]:
    """The learning rates of the groups that take it as a tensor; they may change at each step."""
    return [group["lr"] for group in optimizer.param_groups if is_rate_given(optimizer, group)]


def hyperparameters(optimizer: Optimizer) -> Hyperparameters:
    """Everything else that a program of it has as a constant."""
    return tuple(
        tuple(
            (name, id(value) if isinstance(value, Tensor) else value)
            for name, value in group.items()
            if name != "params" and not (name == "lr" and is_rate_given(optimizer, group))
        )
        for group in optimizer.param_groups
    )


def is_rate_given(optimizer: Optimizer, group: Mapping[str, Any]) -> bool:
    """Whether the program takes a group's learning rate as a tensor."""
    return "lr" in group and ("capturable" in group or type(optimizer) is torch.optim.SGD)


def clip(
    parameters: Mapping[int, Tensor], gradients: Mapping[int, Tensor | None], max_norm: float
) -> None:
    """Scale gradients of a trace, in place, as `clip_grad_norm_` does."""
    with torch.no_grad(), _compiling(), _gradients(parameters, gradients) as all_:
        torch.nn.utils.clip_grad_norm_(all_, max_norm, foreach=True)


def trace(
    optimizer: Optimizer,
    parameters: Mapping[int, Tensor],
    gradients: Mapping[int, Tensor | None],
    state: Mapping[Place, Tensor],
    rates: Sequence[Tensor],
) -> None:
    """Do a step on tensors of a trace, in place; numbers are those of `parameters_of`.

    Raises:
        OptionError: the step fails on tensors without values, or has state that is no tensor.
    """
    _refuse_numbers(optimizer)
    given = iter(rates)
    shadow = copy.copy(optimizer)
    shadow.param_groups = []
    shadow.state = collections.defaultdict(dict)
    numbers = {id(p): i for i, p in enumerate(parameters_of(optimizer))}
    counts: list[tuple[Tensor, Tensor]] = []
    for group in optimizer.param_groups:
        held = [numbers[id(p)] for p in group["params"]]
        own = {**group, "params": [parameters[i] for i in held if gradients.get(i) is not None]}
        if is_rate_given(optimizer, group):
            own["lr"] = next(given)
        own.update({name: value for name, value in _AS_TENSORS.items() if name in group})
        shadow.param_groups.append(own)
    for place, value in state.items():
        if gradients.get(place.parameter) is None:
            continue
        if place.name == "step":
            counts.append((value, value.double()))
            value = counts[-1][1]
        shadow.state[parameters[place.parameter]][place.name] = value
    before = _tensors(shadow)
    with torch.no_grad(), _compiling(), _gradients(parameters, gradients):
        try:
            inspect.unwrap(type(optimizer).step)(shadow)
        except Exception as error:
            raise OptionError(
                f"A step of {type(optimizer).__name__} cannot be part of a program: "
                f"{str(error).partition(_LINE)[0]} {_INSTEAD}"
            ) from error
        for count, wide in counts:
            count.copy_(wide)
    if _tensors(shadow) != before:
        raise OptionError(
            f"A step of {type(optimizer).__name__} makes new state, which a program cannot keep. "
            f"{_INSTEAD}"
        )


def _refuse_numbers(optimizer: Optimizer) -> None:
    """Numbers in its state would be constants of a program."""
    for own in optimizer.state.values():
        for name, value in own.items():
            if isinstance(value, (int, float)):
                raise OptionError(
                    f"{type(optimizer).__name__} counts in its state ({name!r}) with a number, "
                    f"which a program would have as a constant. {_INSTEAD}"
                )


_LINE = "\n"
_AS_TENSORS = {"capturable": True, "foreach": True, "fused": None}


def _tensors(shadow: Optimizer) -> list[int]:
    """Which tensors its state has now."""
    return [
        id(value)
        for own in shadow.state.values()
        for value in own.values()
        if isinstance(value, Tensor)
    ]


@contextlib.contextmanager
def _gradients(
    parameters: Mapping[int, Tensor], gradients: Mapping[int, Tensor | None]
) -> Iterator[list[Tensor]]:
    """Give parameters of a trace their gradients, as `.grad`; those that have one."""
    having = []
    try:
        for number, gradient in gradients.items():
            if gradient is not None:
                parameters[number].grad = gradient
                having.append(parameters[number])
        yield having
    finally:
        for parameter in having:
            parameter.grad = None


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Let optimizers read no values: torch.compiler.is_compiling() within."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before
