"""The ops recorded on one device since its last barrier: a path in a trie of ops.

A trace is the sequence of ops that a training step, say, issues. All traces of a device share a
trie: each edge is an op with its arguments (values by index, see `Ref`), each `State` what has been
recorded so far. A step that repeats walks known states: output shapes are known, no node is built,
nothing is hashed, and the last state knows its executables. A new op adds a state.

Numbers that change from step to step are inputs, and no part of the path (see scalar_inputs).
Integers that only select (x[i]) are constants, by which XLA sees more, until another one is met at
the same place: from then on they are inputs there (see selected).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.numerics.no_reassociation import QUOTIENTS
from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.values.describe import two_devices
from xla_dynamo.compat.values.forks import fork_safe
from xla_dynamo.compat.values.op_table import Op, op_of
from xla_dynamo.compat.values.scalar_inputs import FILLS, LARGE
from xla_dynamo.compat.values.source_location import user_location
from xla_dynamo.compat.values.trie import (
    FALSE,
    FLOAT,
    INT,
    TRUE,
    Outputs,
    State,
    constant,
    metas_in,
    numbers_in,
    refs_in,
    zero_dim,
)
from xla_dynamo.compat.values.values import (
    Failure,
    Held,
    Leaf,
    Meta,
    PutOff,
    Ref,
    Value,
    leaf,
    meta,
    result,
)

from . import replicas, seeds, shape_inference
from .growth import Again, grow
from .revive_overwritten import without_failed
from .trace_bounds import FIRST_LOOK, policy

_EMPTY = op_of(torch.ops.aten.zeros.default)
RESTRIDE = op_of(torch.ops.aten._reshape_alias_copy.default)
# States that a device remembers, of about 1 KB each, before it begins anew.
_STATES = 300_000
_SENT = 16


class ForeignTensor(Exception):
    """A CPU tensor is among the arguments of an op on the lazy device."""


class Trace:
    """The ops and values that are pending on one device.

    inputs: values of earlier traces that ops of this one use; values: what they compute;
    scalars, seeds: numbers and PRNG seeds that this trace takes as inputs, in order of use.
    bound: at how many values it is looked at; ends: the states where one ended by that look;
    follows: whether the one before did.
    sent: arrays of numbers that earlier programs took.
    twin: where ops are new because of an integer that only selects: the state that a trace before
        was in after the same ops.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.lock = fork_safe(threading.RLock())
        self.sent: Bounded[Any, Any] = Bounded(_SENT)
        self._forget()
        self.clear()

    def clear(self) -> None:
        """Start a new trace."""
        if self.states > _STATES:  # ops that never repeat: executables stay, see programs
            self._forget()
        self.state = self.root
        self.stamp: object = object()
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        self.scalars: list[Any] = []
        self.seeds: list[int] = []
        self.bound, self.follows = FIRST_LOOK, False
        self.twin: State | None = None

    def forget_programs(self) -> None:
        """Forget which programs run the traces recorded so far: the next ones are looked up."""
        states = [self.root]
        while states:
            state = states.pop()
            state.programs.clear()
            states.extend(state.children.values())

    def record(self, op: Op, args: Any, kwargs: Any) -> Any:
        """Append an op; returns leaves in the structure of the op's results, or `EAGER`.

        Raises:
            ForeignTensor: an argument is a CPU tensor with dimensions.
            What eager PyTorch raises for such arguments. In both cases the trace is as before.
        """
        made = self.record_values(op, args, kwargs)
        return leaf(made) if type(made) is Value else _leaves(made)

    def record_values(self, op: Op, args: Any, kwargs: Any) -> Any:
        """Like `record`, with values in the place of leaves."""
        with self.lock:
            first, waits = None, False
            try:
                outputs = self._advance(op, args, kwargs)
                made = outputs if outputs is shape_inference.EAGER else self._values(outputs)
            except ForeignTensor:  # an everyday answer, and the trace is as before
                raise
            except Again as again:
                first, waits, made = again.first, again.waits, None
            except BaseException as error:
                self._repair()
                args = without_failed(op.func, args) if isinstance(error, Exception) else None
                if args is None:
                    raise
                return self.record_values(op, args, kwargs)
            if waits:
                made = policy.on_host(self, op, args, kwargs)
                if made is not NotImplemented:
                    return made
            if first is not None:
                first()
                return self.record_values(op, args, kwargs)
            if policy.each_op:
                policy.after_op(self)
            return made

    def _values(self, outputs: Outputs) -> Any:
        """New values of this trace, in the structure of an op's results."""
        if type(outputs) is Meta:
            values = self.values
            value = Value(outputs, self, result(len(values)), self.stamp)
            values.append(value)
            return value
        return outputs if outputs is None else type(outputs)([self._values(o) for o in outputs])

    def _repair(self) -> None:
        """Make the lists agree with the path again: Ctrl-C may have come between two lines."""
        path = self.state.path()
        outputs = [one for state in path for one in metas_in(state.outputs)]
        numbers = sum(numbers_in(state.key) for state in path)
        refs = [ref for state in path for ref in refs_in(state.key)]
        used = [ref.index for ref in refs if ref.meta is not None]
        self._undo(numbers, max(used, default=-1) + 1)
        del self.seeds[sum(state.op.random for state in path) :]
        del self.values[len(outputs) :]
        for missing in outputs[len(self.values) :]:
            self.values.append(Value(missing, self))  # nobody has it

    def _advance(self, op: Op, args: Any, kwargs: Any) -> Outputs:
        """Walk the trie by one op; what the op gives, or `EAGER`, and then nothing has changed.

        One function, although long: it runs for every op of every step.
        """
        scalars, inputs = len(self.scalars), len(self.inputs)
        if self.state is self.root and torch.get_default_dtype() is not self.default_dtype:
            self._forget()
        try:
            stamp = self.stamp
            key: list[Any] = [op]
            add = key.append
            numbers = op.scalars
            for position, argument in enumerate(args):
                kind = type(argument)
                if kind is Leaf:
                    value = argument.value
                    if value.stamp is not stamp:
                        self._adopt(value)
                    add(value.ref)
                elif position in numbers and (kind is float or kind is int):
                    add(self._number(op, argument))
                elif kind is int or argument is None:
                    add(argument)
                else:
                    add(self._token(argument, position in numbers))
            if kwargs:
                for name, argument in kwargs.items():
                    add(name)
                    if name in numbers and type(argument) in (int, float):
                        add(self._number(op, argument))
                    else:
                        add(self._token(argument, False))
            state = self.state
            if key == state.first_key:
                following: Any = state.first
            else:
                edge = tuple(key)
                following = state.children.get(edge) or grow(self, edge, op, args, kwargs)
        except BaseException:
            self._undo(scalars, inputs)
            raise
        if following is shape_inference.EAGER:
            self._undo(scalars, inputs)
            return following
        if op.random:
            self.seeds.append(_next_seed(self, kwargs))
        self.state = following
        return following.outputs

    def _forget(self) -> None:
        """Begin a trie for the default dtype of now, which decides about results; no key has it."""
        self.default_dtype = torch.get_default_dtype()
        self.root = self.state = State()
        self.states = 0
        self.ends: set[State] = set()

    def _number(self, op: Op, number: Any) -> Any:
        token = FLOAT if type(number) is float else INT
        usual = number in (0, 1) and op.func in FILLS
        usual = usual and replicas.size_for(self.device.index) == 1  # or 0 on one, 2 on another
        if usual or (op.func in QUOTIENTS and not -LARGE < number < LARGE):
            return constant(number)
        self.scalars.append(number)
        return token

    def _token(self, argument: Any, numbers: bool) -> Any:
        """The part of a key that stands for an argument."""
        kind = type(argument)
        if kind is Leaf:
            value = argument.value
            if value.stamp is not self.stamp:
                self._adopt(value)
            return value.ref
        if kind is bool:
            return TRUE if argument else FALSE
        if kind is float or kind is int:
            if numbers:
                self.scalars.append(argument)
                return FLOAT if kind is float else INT
            return constant(argument) if kind is float else argument
        if isinstance(argument, (list, tuple)):
            return tuple([self._token(item, numbers) for item in argument])
        if isinstance(argument, torch.Tensor):
            if argument.dim() > 0 or argument.is_complex():
                raise ForeignTensor
            self.scalars.append(argument.item())
            return zero_dim(argument.dtype)
        if kind is complex:
            return constant(argument)
        if kind is torch.Generator:
            return None
        return argument

    def adopt(self, value: Value) -> None:
        """Name a value that this trace did not compute: an input, memory of torch.empty, an op that
        was put off.

        Raises:
            RuntimeError: it is of another device.
            The error of the op that should have computed it.
        """
        if value.array is None and isinstance(value.ref, PutOff):
            self._make_up(value)
            return
        if value.array is None and type(value.ref) is Held:
            value.ref.place(value)
        self._adopt(value)

    def _adopt(self, value: Value) -> None:
        if value.home is not self:
            raise two_devices(value.home.device, self.device)
        if value.array is None:
            if type(value.ref) is Failure:
                raise value.ref.again()
            if isinstance(value.ref, PutOff):
                raise Again(functools.partial(self._make_up, value), waits=True)
            if type(value.ref) is Held:
                place, waits = value.ref.place, not value.ref.is_upload
                raise Again(functools.partial(place, value), waits=waits)
            self._fill(value)
            return
        value.ref = value.meta.input(len(self.inputs))
        self.inputs.append(value)
        value.stamp = self.stamp

    def _fill(self, value: Value) -> None:
        """Make what torch.empty gave a value of this trace: zeros."""
        of = value.meta
        plain = value if of.strides is None else Value(meta(of.shape, of.dtype), self)
        self._append(plain, (_EMPTY, tuple(of.shape), "dtype", of.dtype), 1)
        if plain is not value:
            self._append(value, _restriding(plain, of), 3)

    def _make_up(self, value: Value) -> None:
        """Record the op that was not recorded when it was called, as its result is used now."""
        known = value.ref
        if not isinstance(known, PutOff):  # an argument twice
            return
        for part in known.parts:
            if part.stamp is not self.stamp:
                self.adopt(part)
        arguments = known.arguments([part.ref for part in known.parts])
        self._append(value, (known.op, *arguments), len(arguments))

    def restride(self, value: Value, wanted: Meta) -> Value:
        """The same numbers, with the strides of `wanted`, a meta of the same shape and dtype."""
        with self.lock:
            if value.stamp is not self.stamp:
                self.adopt(value)
            made = Value(wanted, self)
            self._append(made, _restriding(value, wanted), 3)
            return made

    def _append(self, value: Value, key: Any, positional: int) -> None:
        """Make `value` the result of an op whose meta is known."""
        state = self.state.children.get(key)
        if state is None:
            state = self.add_state(key, positional, len(self.scalars), value.meta)
        self.state = state
        value.ref = result(len(self.values))
        value.stamp = self.stamp
        self.values.append(value)

    def _undo(self, scalars: int, inputs: int) -> None:
        del self.scalars[scalars:]
        for value in self.inputs[inputs:]:
            value.stamp = None
        del self.inputs[inputs:]

    def add_state(self, key: Any, positional: int, scalars: int, outputs: Outputs) -> State:
        """What follows the state of now by an op that was never recorded there."""
        parent = self.state
        collective = parent.collective or key[0].collective
        state = State(parent, key, positional, scalars, outputs, user_location(), collective)
        if parent.first is None:
            parent.first_key, parent.first = list(key), state
        parent.children[key] = state
        self.states += 1
        self.twin = None if self.twin is None else self.twin.children.get(key)
        return state

    def meta_of(self, ref: Ref) -> Meta:
        """The meta of what a key refers to."""
        return ref.meta or self.values[ref.index].meta


def _leaves(made: Any) -> Any:
    if type(made) is Value:
        return leaf(made)
    return type(made)(map(_leaves, made)) if isinstance(made, (list, tuple)) else made


def _restriding(value: Value, wanted: Meta) -> tuple[Any, ...]:
    return RESTRIDE, value.ref, tuple(wanted.shape), wanted.layout


def _next_seed(trace: Trace, kwargs: Any) -> int:
    """The seed of one random op: from its generator, or the device's."""
    generator = kwargs.get("generator")
    if generator is not None:
        return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator))
    return seeds.next_seed(trace.device.index)


def trace_of(value: Value) -> Trace:
    """The trace in which a value is, or was, pending."""
    home: Any = value.home  # Trace is the one class of a Home
    return home


def find(args: Sequence[Any], kwargs: Any) -> Trace | None:
    """The trace of an op: the one of its first tensor on a lazy device."""
    for argument in (*args, *kwargs.values()):
        if type(argument) is Leaf:
            return trace_of(argument.value)
        if isinstance(argument, (list, tuple)):
            found = find(argument, {})
            if found is not None:
                return found
    return None
