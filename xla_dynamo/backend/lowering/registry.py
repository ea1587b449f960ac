"""The table of JAX rules: aten op -> function of JAX arrays.

A rule has the signature of its op's schema. Tensors arrive as JAX arrays (64-bit types keep their
width), everything else (ints, lists, bools, torch.dtype, None) as in the FX node. It returns an
array, or a tuple with one entry per output of the op (None where an output is undefined, as in
gradients that the output mask excludes). Results are converted to the dtypes that PyTorch's own
shape inference gave, and their shapes are checked against it, so a rule need not convert.

A rule must not read values: it is traced once per combination of shapes and static arguments and
becomes the body of a StableHLO function. It raises `Unsupported(reason, remedy)` for arguments it
does not cover; the op then runs on the CPU. Any other exception is a bug of the rule. An empty
array for a result that has elements declines too: batch_norm gives what eager saves on a CPU, and
on other devices it is decomposed.

A rule is plain mathematics for all platforms. Where one platform needs another form of a function,
that is `PerPlatform`, and the form is a second function, `@function.on("cpu")`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Refusal:
    """Why XLA does not get an op with these arguments, in whole sentences for the user.

    reason: what is not covered, and why.
    remedy: what the user can do about it; empty for the advice that goes with `kind`.
    kind: "no rule": the op is unknown; "arguments": its rule does not cover these; "eager": eager
        PyTorch raises for them, and is left to do so; "bug": the rule failed.
    """

    reason: str
    remedy: str = ""
    kind: Literal["no rule", "arguments", "eager", "bug"] = "arguments"


class Unsupported(Exception):
    """Raised by a rule for arguments that it does not cover: `Refusal` says what the texts are."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True)
class Target:
    """What a program is lowered for; part of the key of everything that is lowered.

    platform: a JAX platform name ("cpu", "tpu", "cuda", ...).
    matmul_precision: of float32 products, "highest", "high" or "medium".
    numerics: "eager" keeps XLA from rewriting floats as if they were real numbers, "xla" lets it.
    kernels: "torch" lets programs for a CPU call PyTorch's kernels, "xla" does not.
    attention: on TPU and CUDA, "kernel", "xla" or "auto"; only their rules for attention ask.
    random_bits: "threefry", or "rbg", the device's own generator; only rules/random_bits.py asks.
    convolution_precision: of float32 convolutions, as of products.
    """

    platform: str
    matmul_precision: str = "highest"
    numerics: str = "eager"
    kernels: str = "xla"
    attention: str = "auto"
    random_bits: str = "threefry"
    convolution_precision: str = "highest"


_CPU = Target("cpu")
_target: ContextVar[Target] = ContextVar("target", default=_CPU)


@contextmanager
def lowering_for(target: Target) -> Iterator[None]:
    """Trace rules for `target`.

    JAX does not know of it, and caches traces by function: no rule may read the target inside of a
    module-level function that it hands to jax.jit or to a loop.
    """
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def platform() -> str:
    """The platform that rules are being traced for. Rules do not ask; they have forms `on` it."""
    return _target.get().platform


def numerics() -> str:
    """ "eager" or "xla"; only rules/_numerics.py asks."""
    return _target.get().numerics


def attention() -> str:
    """ "kernel", "xla", or "auto": by the shape."""
    return _target.get().attention


def random_bits() -> str:
    """ "threefry" or "rbg"."""
    return _target.get().random_bits


class PerPlatform(Generic[P, R]):
    """A function of arrays, and the forms that it has on single platforms; calls the right one."""

    def __init__(self, plain: Callable[P, R]) -> None:
        self.plain = plain
        self._forms: dict[str, Callable[P, R]] = {}

    def on(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Register the decorated function as the form on the platform `name`."""

        def register(function: Callable[P, R]) -> Callable[P, R]:
            if name in self._forms:
                raise ValueError(f"{self.plain} has two forms on {name}")
            self._forms[name] = function
            return function

        return register

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._forms.get(platform(), self.plain)(*args, **kwargs)


@dataclass(frozen=True)
class Rule:
    """How one op becomes XLA: `function` of JAX arrays; `random` rules take a PRNG key first.

    narrow_on: a platform for which the rule is lowered without 64-bit types, if no tensor of the op
        has one.
    """

    function: Callable[..., Any]
    random: bool = False
    narrow_on: str = ""


RULES: dict[Any, Rule] = {}  # by op, or by the name of an op that PyTorch defines later
_more: ContextVar[Mapping[Any, Rule]] = ContextVar("more", default=MappingProxyType({}))


def draws(op: Any) -> bool:
    """Whether `op` has a rule that takes a PRNG key."""
    rule = rule_of(op)
    return rule is not None and rule.random


def rule_of(op: Any) -> Rule | None:
    """The rule of an OpOverload, if it has one."""
    return RULES.get(op) or RULES.get(str(op)) or _more.get().get(op)


@contextmanager
def with_rules(more: Mapping[Any, Rule]) -> Iterator[None]:
    """Within, there are these rules too, for ops that have none."""
    token = _more.set(more)
    try:
        yield
    finally:
        _more.reset(token)


def lower(*ops: Any, random: bool = False, narrow_on: str = "") -> Callable[[Function], Function]:
    """Register the decorated function as the lowering of each of `ops` (OpOverloads, or names)."""

    def register(function: Function) -> Function:
        for op in ops:
            if op in RULES:
                raise ValueError(f"{op} has two rules: {RULES[op].function} and {function}")
            RULES[op] = Rule(function, random, narrow_on)
        return function

    return register


def lower_random(*ops: Any) -> Callable[[Function], Function]:
    """Like `lower`, for ops that draw random numbers: the rule's first argument is a key.

    The key is a uint32 array of shape [2], different for each op of a graph and each call. A
    torch.Generator is refused before the rule is called.
    """

    def register(function: Function) -> Function:
        lower(*ops, random=True)(functools.partial(_without_generator, function))
        return function

    return register


def _without_generator(rule: Callable[..., Any], key: Any, *args: Any, **kwargs: Any) -> Any:
    generator = kwargs.pop("generator", None)
    if generator is not None or any(isinstance(argument, torch.Generator) for argument in args):
        raise Unsupported(
            "It draws from a torch.Generator, whose state only eager PyTorch can advance.",
            "Pass no generator: torch.manual_seed seeds what is compiled.",
        )
    return rule(key, *args, **kwargs)
