"""A whole training step, forward, backward and optimizer, as one program.

    @xla_dynamo.training_step(optimizer)
    def step(x, y):
        return F.mse_loss(model(x), y)

    loss = step(x, y)

Dynamo captures the function, with its guards; gradients and the optimizer's step are traced into
its graph. Parameters and state are updated in place, nothing is saved between forward and backward,
and no gradient is kept. As jax.jit of a step in JAX, it is launched once.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from xla_dynamo.bounded import Bounded
from xla_dynamo.errors import OptionError

from .capture import (
    optimizer_step,
    own_errors,
    parameter_updates,
    step_graph,
)
from .capture.optimizer_step import Place
from .capture.step_gradients import Changes

Function = Callable[..., Any]
_PROGRAMS = 16  # of other hyperparameters


def training_step(
    optimizer: Optimizer,
    *,
    max_grad_norm: float | None = None,
    average_gradients: bool = True,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> Callable[[Function], Function]:
    """A decorator for a function that computes the loss: a call of it is a training step.

    The function returns the loss, a tensor of one element, or a tuple that begins with it. A call
    returns the same, detached, and has updated the optimizer's parameters and its state as
    `loss.backward()` and `optimizer.step()` would from gradients of zero. Gradients are not kept:
    `.grad` is neither read nor written. Learning rates may change at each call; another value of
    another hyperparameter is another program. Where processes or threads are replicas that train
    together (xmp.spawn, torchrun, DataParallel), gradients are averaged over them, as by
    `xm.optimizer_step`, unless `average_gradients` is False.

    max_grad_norm: scale gradients as `torch.nn.utils.clip_grad_norm_` does, before the step.
    average_gradients: first average gradients over the replicas.
    options, dynamic: as of torch.compile(backend="xla").

    Raises:
        OptionError: the optimizer's step takes a closure, has hooks, or makes state at later steps;
            the function returns no loss that depends on the optimizer's parameters.
        ReplicaError: other replicas do not come, or with another step.
        torch._dynamo.exc.Unsupported: the function is not one graph.
    """
    optimizer_step.check(optimizer)

    def decorate(function: Function) -> Function:
        changes = Changes(max_grad_norm, average_gradients)
        step = _Step(function, optimizer, changes, dict(options or {}), dynamic)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return step(args, kwargs)

        return call

    return decorate


class _Step:
    """The compiled functions of a step, by what they have as constants."""

    def __init__(
        self,
        function: Function,
        optimizer: Optimizer,
        changes: Changes,
        options: dict[str, Any],
        dynamic: bool | None,
    ) -> None:
        self._function, self.optimizer, self._changes = function, optimizer, changes
        self._replicas = 1
        self._options, self._dynamic = options, dynamic
        self._compiled: Bounded[Any, Function] = Bounded(_PROGRAMS)
        self._state: Any = None  # the dictionary that `places` are of
        self.parameters: list[Tensor] = []
        self.places: tuple[Place, ...] = ()
        self._updates: Any = None  # of the latest trace, until it is compiled
        self._groups = 0
        self._known: list[Any] = []  # learning rates, and the tensors of them
        self._rates: list[Tensor] = []

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        optimizer = self.optimizer
        if optimizer.state is not self._state or len(optimizer.param_groups) != self._groups:
            if not optimizer_step.begin(optimizer):
                return self._eagerly(args, kwargs)
            self._look()
        key = optimizer_step.hyperparameters(optimizer)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile()
        with torch.enable_grad():
            result = compiled(_SOME, *args, **kwargs)
        loss = result[0] if isinstance(result, tuple) else result
        if not isinstance(loss, Tensor) or loss.requires_grad:  # Dynamo was off, or skipped it
            raise OptionError(_NOT_COMPILED)
        optimizer._opt_called = True  # type: ignore[attr-defined]  # LRScheduler asks
        return result

    def _look(self) -> None:
        """See what the optimizer holds now: its state may have been loaded, groups added."""
        optimizer = self.optimizer
        self._state, self._groups = optimizer.state, len(optimizer.param_groups)
        parameters = optimizer_step.parameters_of(optimizer)
        optimizer_step.bring_counts(optimizer)
        places = tuple(optimizer_step.places(optimizer))
        if places != self.places or [*map(id, parameters)] != [*map(id, self.parameters)]:
            self._compiled.clear()
            self.parameters, self.places = parameters, places

    def _compile(self) -> Function:
        from .capture import recurrent_modules  # which imports Dynamo

        recurrent_modules.allow_once(_Step._backend)
        self._replicas = self._changes.replicas(self.parameters)
        function = self._function

        def with_loss(_: Tensor, *args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if isinstance(result, tuple):
                return result[0], *pytree.tree_map(_detached, result[1:])
            return result

        # Dynamo keeps what it compiled by code object, and skips what is given no tensor. Which
        # sizes change it remembers by a code's name and line, of all processes: as the user's.
        code = with_loss.__code__.replace(co_name=_name_for(function))
        own = types.FunctionType(code, globals(), closure=with_loss.__closure__)
        return torch.compile(own, backend=self._backend, fullgraph=True, dynamic=self._dynamic)

    def _eagerly(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The first step of an optimizer whose state is not known before."""
        optimizer = self.optimizer
        parameters = optimizer_step.parameters_of(optimizer)
        with torch.enable_grad():
            result = self._function(*args, **kwargs)
            loss = result[0] if isinstance(result, tuple) else result
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with self._changes.in_place(parameters, gradients):
            optimizer.step()
        return pytree.tree_map(_detached, result)

    def _backend(self, module: GraphModule, inputs: Sequence[Any]) -> Function:
        from xla_dynamo.backend import xla

        from .capture import aot

        numbers = {id(p): i for i, p in enumerate(self.parameters)}
        held = {numbers[id(x)]: position for position, x in enumerate(inputs) if id(x) in numbers}
        tensors = self._tensors()
        with own_errors.passing_through("xla", sys._getframe()):
            with_step = step_graph.extended(module, held, tensors, self._trace)
            fakes = aot.of_fixed_sizes(tensors)
        run = xla(with_step, [*inputs, *fakes], options=self._options)

        def call(*given: Any) -> Any:
            if any(given[position] is not self.parameters[i] for i, position in held.items()):
                raise OptionError(_OTHER_PARAMETER)
            return run(*given, *self._tensors())

        return call

    def _tensors(self) -> list[Tensor]:
        """The state and the learning rates, as they are now."""
        state, parameters = self.optimizer.state, self.parameters
        return [state[parameters[p.parameter]][p.name] for p in self.places] + self._given_rates()

    def _given_rates(self) -> list[Tensor]:
        now = optimizer_step.rates(self.optimizer)
        if len(now) != len(self._known):
            self._known, self._rates = [None] * len(now), [_SOME] * len(now)
        home = self.parameters[0].device
        for i, rate in enumerate(now):
            if isinstance(rate, Tensor):
                self._rates[i] = rate.detach().to(home, torch.float64).reshape(())
                self._known[i] = None
            elif rate != self._known[i]:
                self._rates[i] = torch.tensor(rate, dtype=torch.float64, device=home)
                self._known[i] = rate
        return self._rates

    def _trace(
        self,
        parameters: Mapping[int, Tensor],
        gradients: Mapping[int, Tensor | None],
        tensors: Sequence[Tensor],
    ) -> None:
        gradients = self._changes.in_trace(parameters, gradients, self._replicas)
        count = len(self.places)
        state = dict(zip(self.places, tensors[:count], strict=True))
        given = parameters, gradients, state, tensors[count:]
        self._updates = parameter_updates.trace(self.optimizer, *given)
        if self._updates is None:
            optimizer_step.trace(self.optimizer, *given)


_SOME = torch.empty(0, device="cpu")
_NOT_COMPILED = (
    "The function of a training step was not compiled, so nothing was trained: Dynamo is disabled "
    "(TORCHDYNAMO_DISABLE, torch.compiler.disable), or skips the function."
)
_OTHER_PARAMETER = (
    "A parameter of the model is not the tensor that the optimizer has: it was replaced after the "
    "optimizer was made. Make the optimizer, and the training step, of the model as it is now."
)


def _name_for(function: Function) -> str:
    """A name that no other function of the user's has, of a file or line of its own."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = (
        type(function).__qualname__ if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    )
    return f"with_loss_{zlib.crc32(where.encode()):08x}"


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
